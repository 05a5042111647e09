"""Marks: parking, strikes, and who waits for a run."""

from __future__ import annotations

import pytest

from tests.conformance.store.driving import Clock, Run, ends, signal, task, waits
from tidewheel.journal import events as ev
from tidewheel.store.append import Append, Await, Fate, Park, Strike, Unpark, Verdict
from tidewheel.store.ledger import REPLY_TO_MAX
from tidewheel.store.protocol import RunFilter, Store

PARKED = Park(kind="violation", reason="step 3 was renamed")


async def test_a_parked_run_is_not_woken_but_takes_facts(run: Run, store: Store, clock: Clock) -> None:
    """Nothing is lost while it is parked, and nobody tries it again and again."""
    await run.mark(PARKED)

    answer = await run.tell(signal())

    assert (answer.verdicts, answer.hints) == ([Verdict.WRITTEN], [])
    record = await run.record()
    assert (record.parked, record.parked_reason, record.wake_at) == ("violation", PARKED.reason, None)
    clock.advance(1000)
    assert (await store.claim_due(limit=10)).hints == []


async def test_unparking_wakes_the_run(run: Run) -> None:
    """Somebody fixed the code: the run is tried again, and its strikes are forgiven."""
    await run.mark(Strike(reason="died", limit=5))
    await run.mark(PARKED)

    answer = await run.mark(Unpark())

    record = await run.record()
    assert (record.parked, record.parked_reason, record.strikes) == (None, None, 0)
    assert [hint.run for hint in answer.hints] == [run.ref]
    assert record.wake_at is not None


async def test_unparking_what_is_not_parked_does_nothing(run: Run) -> None:
    """It may be asked for twice."""
    await run.move(waits())

    answer = await run.mark(Unpark())

    assert answer.hints == []
    assert (await run.record()).wake_at is None


async def test_an_activation_that_gets_on_unparks(run: Run) -> None:
    """Moves show that the code fits again."""
    await run.mark(PARKED)

    await run.move(task(), waits("0"))

    assert (await run.record()).parked is None


async def test_a_run_that_dies_alone_again_and_again_is_quarantined(run: Run) -> None:
    """The first time it is only tried alone; each time it dies alone counts."""
    first = await run.mark(Strike(reason="its worker died", limit=3))

    answers = [await run.mark(Strike(reason="its worker died", limit=3, alone=True)) for _ in range(3)]

    assert (first.strikes, [hint.alone for hint in first.hints]) == (1, [True])
    assert [answer.strikes for answer in answers] == [2, 3, 0]
    assert [[hint.alone for hint in answer.hints] for answer in answers] == [[True], [], []]
    record = await run.record()
    assert (record.parked, record.parked_reason) == ("quarantine", "its worker died")
    assert (record.strikes, record.wake_at) == (3, None)


async def test_messages_that_died_in_company_count_once(run: Run) -> None:
    """A hundred hints of one run in the hands of one worker that died prove nothing against the run."""
    answers = [await run.mark(Strike(reason="its worker died", limit=2)) for _ in range(100)]

    assert [answer.strikes for answer in answers] == [1] + [0] * 99
    assert (await run.record()).parked is None


async def test_a_run_with_a_strike_is_only_hinted_alone(run: Run, store: Store, clock: Clock) -> None:
    """Whoever wakes it, it is not to take others along; once it got on, it is a run like any other."""
    await run.mark(Strike(reason="its worker died", limit=2))
    clock.advance(1000)

    repeated = await store.claim_due(limit=10)
    clock.advance(1000)
    woken = await run.tell(signal("first"))
    await run.see()
    await run.move(task(), waits("0"))
    later = await run.tell(signal("second"))

    assert [hint.alone for hint in [*repeated.hints, *woken.hints]] == [True, True]
    assert [hint.alone for hint in later.hints] == [False]


async def test_getting_on_forgives_strikes(run: Run) -> None:
    """Only strikes in a row count."""
    await run.mark(Strike(reason="died", limit=3))
    await run.move(task(), waits("0"))

    answer = await run.mark(Strike(reason="died", limit=3))

    assert answer.strikes == 1


@pytest.mark.parametrize("mark", [PARKED, Unpark(), Strike(reason="died", limit=1)])
async def test_a_run_that_ended_is_not_marked(run: Run, mark: Park | Unpark | Strike) -> None:
    """There is nothing to try again."""
    await run.move(ends())

    answer = await run.mark(mark)

    record = await run.record()
    assert (record.parked, record.strikes, record.wake_at, answer.hints) == (None, 0, None, [])


async def test_whoever_waits_is_told_of_the_end_once(store: Store) -> None:
    """The start and any later append can bring a waiter; each is listed once."""
    run = Run(store, "r")
    await run.start(mark=Await(reply_to="a"))
    await run.mark(Await(reply_to="b"))
    await run.mark(Await(reply_to="a"))

    answer = await run.move(ends())

    assert [(end.run, end.reply_to) for end in answer.ended] == [(run.ref, ("a", "b"))]


async def test_who_comes_after_the_end_is_told_at_once(run: Run) -> None:
    """Alone: the others were told."""
    await run.mark(Await(reply_to="a"))
    await run.move(ends())

    answer = await run.mark(Await(reply_to="b"))

    assert [end.reply_to for end in answer.ended] == [("b",)]


async def test_waiters_are_bounded(run: Run) -> None:
    """Further ones have to look for themselves."""
    marks = [Append(run=run.ref, mark=Await(reply_to=f"c{number}")) for number in range(REPLY_TO_MAX + 5)]
    await run.store.append(marks)

    answer = await run.move(ends())

    assert [len(end.reply_to) for end in answer.ended] == [REPLY_TO_MAX]


async def test_a_mark_is_kept_beside_moves_that_are_dropped(run: Run) -> None:
    """A stale activation may still say that the code does not fit."""
    answer = await run.ask(moves=run.moves(task(), expected=b"other"), mark=PARKED)

    assert answer.fate is Fate.STALE
    assert (await run.record()).parked == "violation"


async def test_parked_runs_can_be_listed(run: Run, store: Store) -> None:
    """An operator sees what waits for one."""
    await Run(store, "other").start()
    await run.mark(Park(kind="needs_version", reason="no worker has version 2"))

    parked = await store.runs(RunFilter(namespace="default", parked_only=True))

    assert [(record.run_id, record.parked) for record in parked] == [("r", "needs_version")]


async def test_marks_write_no_event(run: Run) -> None:
    """They are about who looks after the run, not about what happened in it."""
    for mark in (Strike(reason="died", limit=9), PARKED, Unpark(), Await(reply_to="a")):
        await run.mark(mark)

    assert [type(entry.event) for entry in await run.journal()] == [ev.ExecutionStarted]
