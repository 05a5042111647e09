"""Code of users that takes its process along: it does not do so for ever, and not to its neighbours."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from tests.faults.audit import journal_findings
from tests.faults.ledger import repeated_attempts
from tests.faults.nursery import PATIENCE_S
from tests.faults.place import Place
from tests.faults.shop import bottomless, doomed, doomed_and_parked, doomed_far, doomed_later, poison, several
from tidewheel.journal import events as ev
from tidewheel.sdk.errors import RunFailed
from tidewheel.sdk.handle import Handle
from tidewheel.sdk.hinting import publications
from tidewheel.store.append import Append, Unpark
from tidewheel.store.records import RunRef

#: More deaths than this are too many, whatever the code does.
DEATHS_MAX = 30


async def restart_until(place: Place, holds: Callable[[], Awaitable[bool]]) -> int:
    """Start a worker again whenever it dies, until *holds* does; return how often it died."""
    loop = asyncio.get_running_loop()
    deadline_s, deaths = loop.time() + PATIENCE_S, 0
    while True:
        worker = await place.serve()
        while not worker.ended.done():
            if await holds():
                return deaths
            await asyncio.sleep(0.02)
            if deaths > DEATHS_MAX or loop.time() > deadline_s:
                runs = place.rows("SELECT run_id, phase, parked, parked_reason FROM tidewheel_runs")
                raise AssertionError(f"{deaths} deaths, and it goes on: {runs}\n{worker.said()}")
        deaths += 1


async def neighbours(place: Place) -> list[Handle[int]]:
    """Start runs that do nothing wrong."""
    return [
        await place.client.start(several, f"good{number}", 5, run_id=f"good{number}") for number in range(4)
    ]


async def have_ended(handles: Sequence[Handle[Any]]) -> bool:
    """Tell whether all of them are completed."""
    return all([await handle.status() == "COMPLETED" for handle in handles])


async def test_a_body_that_kills_its_process_uses_up_its_attempts(place: Place) -> None:
    """Each death is an attempt; when they are spent the code gets the error, and the neighbours are done."""
    good = await neighbours(place)
    bad = await place.client.start(doomed, "bad", run_id="bad")

    deaths = await restart_until(place, lambda: have_ended([bad, *good]))

    assert deaths == 3
    assert await bad.result() == "WorkerLost after 3"
    assert [line.attempt for line in place.ledger.of("bad")] == [1, 2, 3]
    assert repeated_attempts(place.ledger.lines()) == []
    assert list(journal_findings(place.folder)) == []


async def test_a_retry_that_kills_its_process_is_an_attempt_too(place: Place) -> None:
    """An attempt that began after its pause may have had its effect: its number is not used again."""
    bad = await place.client.start(doomed_later, "bad", run_id="bad")

    deaths = await restart_until(place, lambda: have_ended([bad]))

    assert deaths == 3
    assert await bad.result() == "WorkerLost after 4"
    assert [line.attempt for line in place.ledger.of("bad")] == [1, 2, 3, 4]


async def test_a_queued_body_that_kills_its_process_uses_up_its_attempts(place: Place) -> None:
    """The same holds for a step that came over a queue."""
    good = await neighbours(place)
    bad = await place.client.start(doomed_far, "bad", run_id="bad")

    deaths = await restart_until(place, lambda: have_ended([bad, *good]))

    assert deaths == 3
    assert await bad.result() == "WorkerLost after 3"
    assert [line.attempt for line in place.ledger.of("bad")] == [1, 2, 3]
    assert repeated_attempts(place.ledger.lines()) == []


async def test_a_body_that_kills_its_process_waits_for_an_operator_if_asked_to(place: Place) -> None:
    """With ``on_exhausted="park"`` the step is parked when its attempts are spent; the worker lives on."""
    good = await neighbours(place)
    await place.client.start(doomed_and_parked, "bad", run_id="bad")

    async def is_parked() -> bool:
        states = place.rows("SELECT state FROM tidewheel_steps WHERE function_name = 'die_and_park'")
        return states == [("parked",)] and await have_ended(good)

    deaths = await restart_until(place, is_parked)

    assert deaths == 2
    last = (await place.journal("bad"))[-1].event
    assert isinstance(last, ev.InvokeRetrying)
    assert last.retry_at is None
    assert last.error.type == "WorkerLost"


async def test_code_that_recurses_without_end_fails_and_its_worker_lives(place: Place) -> None:
    """In a step it is the step's error, in the workflow's code the run's; neighbours do not notice."""
    worker = await place.serve()
    good = await neighbours(place)

    in_step = await place.client.start(bottomless, "step")
    in_code = await place.client.start(bottomless, "code")

    assert await in_step.result(timeout=30) == "RecursionError"
    with pytest.raises(RunFailed) as failed:
        await in_code.result(timeout=30)
    assert failed.value.error.type == "RecursionError"
    assert [await handle.result(timeout=30) for handle in good] == [5] * 4
    assert not worker.ended.done()


async def test_workflow_code_that_kills_its_process_is_quarantined(place: Place) -> None:
    """After a bounded number of deaths the run is set aside with its reason, until somebody lets it go on."""
    bad = await place.client.start(poison, "bad", run_id="bad")
    good = await neighbours(place)

    async def is_quarantined() -> bool:
        found = place.rows("SELECT parked FROM tidewheel_runs WHERE run_id = 'bad'")
        return found == [("quarantine",)] and await have_ended(good)

    deaths = await restart_until(place, is_quarantined)

    ((reason,),) = place.rows("SELECT parked_reason FROM tidewheel_runs WHERE run_id = 'bad'")
    assert 1 <= deaths <= DEATHS_MAX
    assert "workers died" in reason
    place.let("antidote")
    (answer,) = await place.store.append([Append(run=RunRef("default", "bad"), mark=Unpark())])
    await place.broker.publish(publications([answer]))
    assert await bad.result(timeout=30) == "bad"
    assert list(journal_findings(place.folder)) == []
