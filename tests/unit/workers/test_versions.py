"""Which code goes on with a run: the version it began with, by its label or by its digest."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

import pytest
from msgspec import UNSET

from tests.unit.workers.house import House
from tests.unit.workers.postbox import Postbox
from tidewheel import App, Context
from tidewheel.journal import events as ev
from tidewheel.journal.public import published
from tidewheel.journal.verify import verify
from tidewheel.store.append import Append, Appended, Park

MINUTE = 60.0


def _labelled(version: str | None) -> App:
    """Return an app whose workflow has this label, and answers with it."""
    app = App("greeter")

    @app.workflow(version=version)
    async def greet(ctx: Context, times: int) -> list[str]:
        heard = []
        for _ in range(times):
            await ctx.signal("go")
            heard.append(version or "unlabelled")
        return heard

    @app.workflow(version=version)
    async def loops(ctx: Context, left: int) -> str:
        await ctx.signal("go")
        return ctx.continue_as_new(left - 1) if left else f"ended by {version}"

    @app.workflow(version=version)
    async def hurries(ctx: Context, left: int) -> str:
        if left:
            ctx.continue_as_new(left - 1)
        await ctx.signal("go")
        return f"ended by {version}"

    return app


def _digested(pin: Literal["version", "digest"], word: str) -> App:
    """Return an app whose workflow has no label, and whose code depends on *word*."""
    app = App("pinned")
    if word == "first":

        @app.workflow(pin=pin)
        async def says(ctx: Context) -> str:
            await ctx.signal("go")
            return "first"
    else:

        @app.workflow(pin=pin, name="says")
        async def says_otherwise(ctx: Context) -> str:
            await ctx.signal("go")
            return "second"

    return app


async def _waits(house: House, run_id: str, times: int = 1) -> None:
    await house.until(lambda: house.kinds(run_id)["ExecutionAwaiting"] >= times)


async def test_a_run_that_was_started_by_name_belongs_to_the_version_that_began_it(house: House) -> None:
    """Its first wait says so, and from then on workers of another version leave it alone."""
    client = await house.client()
    old = await house.worker(_labelled("1"))
    await house.keeper()
    handle = await client.start("greet", 2)
    before = house.run(handle.run_id).version
    await _waits(house, handle.run_id)
    await old.stop()
    await house.worker(_labelled("2"))
    await handle.signal("go")
    await house.until(lambda: house.run(handle.run_id).parked == "needs_version")

    assert (before, house.run(handle.run_id).version) == ("", "1")
    reason = house.run(handle.run_id).parked_reason
    assert reason == "the run needs version '1' of 'greet'; this worker has '2'"
    await handle.signal("go")
    await house.worker(_labelled("1"))
    assert await handle.result(timeout=MINUTE) == ["1", "1"]
    waits = [event for event in house.events(handle.run_id) if isinstance(event, ev.ExecutionAwaiting)]
    assert [wait.version for wait in waits] == ["1", *[UNSET] * (len(waits) - 1)]


async def test_code_without_a_label_pins_nothing(house: House) -> None:
    """Any worker that has the workflow goes on with the run; its digest is told all the same."""
    client = await house.client()
    old = await house.worker(_labelled(None))
    await house.keeper()
    handle = await client.start("greet", 1)
    await _waits(house, handle.run_id)
    await old.stop()
    await house.worker(_labelled("2"))
    await handle.signal("go")

    assert await handle.result(timeout=MINUTE) == ["2"]
    assert house.run(handle.run_id).version == ""
    assert len(house.run(handle.run_id).digest) == 64


@pytest.mark.parametrize("by_name", [True, False])
async def test_a_run_pinned_by_digest_waits_for_that_very_code(house: House, by_name: bool) -> None:
    """However it was started: other code of the same name parks it, the same code takes it up."""
    client = await house.client()
    app = _digested("digest", "first")
    first = await house.worker(app)
    await house.keeper()
    handle = await client.start("says" if by_name else app.workflows["says"].fn)
    await _waits(house, handle.run_id)
    await first.stop()
    await house.worker(_digested("digest", "second"))
    await handle.signal("go")
    await house.until(lambda: house.run(handle.run_id).parked == "needs_version")
    await asyncio.sleep(MINUTE)

    digest = house.run(handle.run_id).digest
    assert f"needs the code {digest[:12]} of 'says'" in (house.run(handle.run_id).parked_reason or "")
    await house.worker(_digested("digest", "first"))
    assert await handle.result(timeout=MINUTE) == "first"


@pytest.mark.parametrize("workflow", ["loops", "hurries"])
async def test_the_version_goes_on_across_segments(house: House, workflow: str) -> None:
    """Also where the first segment ends before it ever waits; all that was published fits the journal."""
    client = await house.client()
    old = await house.worker(_labelled("1"))
    await house.keeper()
    handle = await client.start(workflow, 2)
    for _ in range(2 if workflow == "loops" else 0):
        await handle.signal("go")
    await house.until(lambda: house.kinds(handle.run_id)["ExecutionStarted"] == 3)
    await asyncio.sleep(1)
    await old.stop()
    await house.worker(_labelled("2"))
    await handle.signal("go")
    await house.until(lambda: house.run(handle.run_id).parked == "needs_version")
    await house.worker(_labelled("1"))

    assert await handle.result(timeout=MINUTE) == "ended by 1"
    assert house.run(handle.run_id).version == "1"
    journal = await handle.journal()
    assert verify(journal) == []
    told = [event.plan_version for event in published(journal, handle.run_id)]
    assert told == ["", *["1"] * (len(told) - 1)]
    assert [event.plan_version for event in await handle.events()] == told


async def test_two_versions_side_by_side_pass_hints_on(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who gets a hint of a run of the other version gives it to a worker that has it: nothing is parked."""
    client = await house.client()
    await house.worker(_labelled("1"))
    handles = [await client.start("greet", 10) for _ in range(5)]
    for handle in handles:
        await _waits(house, handle.run_id)
    await house.worker(_labelled("2"))
    await house.keeper()
    append, parked = house.store.append, 0

    async def counted(batch: Sequence[Append]) -> list[Appended]:
        nonlocal parked
        parked += sum(isinstance(one.mark, Park) for one in batch)
        return await append(batch)

    monkeypatch.setattr(house.store, "append", counted)
    for _ in range(10):
        for handle in handles:
            await handle.signal("go")
        await asyncio.sleep(0.2)

    assert [await handle.result(timeout=MINUTE) for handle in handles] == [["1"] * 10] * 5
    assert parked == 0


async def test_a_run_is_passed_on_to_a_worker_that_has_its_workflow(house: House) -> None:
    """A worker without it knows one that has: the run does not wait for a keeper."""
    client = await house.client()
    bare = await house.worker(App("bare"))
    able = await house.worker(_labelled("1"))
    able._chores[0].cancel()  # what comes over the shared queue is the other's
    handle = await client.start("greet", 1)
    await handle.signal("go")

    assert await handle.result(timeout=MINUTE) == ["1"]
    assert bare.cached() == 0


async def test_a_start_by_message_belongs_to_the_version_of_its_function(house: House) -> None:
    """As with ``start``: a worker of another label takes it, and the run waits for one that has it."""
    client = await house.client()
    await house.worker(_labelled("1"))
    await house.keeper()
    handle = await client.publish_start(_labelled("2").workflows["greet"].fn, 1)
    await house.until(lambda: bool(house.store.rows.runs))
    await house.until(lambda: house.run(handle.run_id).parked == "needs_version")
    began = (house.run(handle.run_id).version, house.run(handle.run_id).digest)

    await house.worker(_labelled("2"))
    await _waits(house, handle.run_id)
    await handle.signal("go")

    assert began == ("2", "")
    assert await handle.result(timeout=MINUTE) == ["2"]


async def test_a_start_by_message_of_this_version_is_begun_here(house: House) -> None:
    """Its first turn is written with its start, and its journal says by which code."""
    client = await house.client()
    app = _labelled("2")
    await house.worker(app)

    handle = await client.publish_start(app.workflows["greet"].fn, 0)
    await handle.result(timeout=MINUTE)

    (started, *_) = house.events(handle.run_id)
    assert isinstance(started, ev.ExecutionStarted)
    assert (started.version, started.component_digest) == ("2", app.workflows["greet"].digest)


@pytest.mark.parametrize("version", ["1", None])
async def test_the_arguments_of_another_version_are_not_judged(house: House, version: str | None) -> None:
    """A worker knows what its own code takes, and a start without a label is for that."""
    await house.worker(_labelled("2"))
    postbox = Postbox(house)

    await postbox.start("greet", "no number", run_id="r", **({} if version is None else {"version": version}))
    await asyncio.sleep(5)

    refused = await postbox.reasons()
    assert (len(refused), len(await postbox.runs())) == ((0, 1) if version else (1, 0))
