"""Batches: many runs in one transaction, each with its own answer."""

from __future__ import annotations

import asyncio

from tests.conformance.store.driving import Run, a_start, done, ends, resumes, signal, task, waits
from tidewheel.store.append import Append, Fate, Verdict
from tidewheel.store.protocol import Store
from tidewheel.store.records import RunRef


async def started(store: Store, *names: str) -> list[Run]:
    """Start runs, in one batch."""
    runs = [Run(store, name) for name in names]
    answers = await store.append([Append(run=run.ref, start=a_start()) for run in runs])
    for run, answer in zip(runs, answers, strict=True):
        run.seen = answer.last_seq
    return runs


async def test_answers_are_in_the_order_of_the_batch(store: Store) -> None:
    """Each run's answer is at its own place."""
    runs = await started(store, *"abcdefgh")

    answers = await store.append([Append(run=run.ref, facts=(signal(),)) for run in reversed(runs)])

    assert [answer.run for answer in answers] == [run.ref for run in reversed(runs)]


async def test_a_refusal_does_not_disturb_its_neighbours(store: Store) -> None:
    """A stale move, an unknown run, a late fact and a run that ended are answers; the others are written."""
    good, stale, late, over = await started(store, "good", "stale", "late", "over")
    await over.move(ends())

    answers = await store.append(
        [
            Append(run=stale.ref, moves=stale.moves(task(), expected=b"other")),
            Append(run=RunRef("default", "nobody"), facts=(signal(),)),
            Append(run=good.ref, moves=good.moves(task(), waits("0"))),
            Append(run=late.ref, facts=(done("9"),)),
            Append(run=over.ref, facts=(signal(),)),
            Append(run=late.ref, facts=(signal(),)),
        ]
    )

    assert [answer.fate for answer in answers] == [Fate.STALE, None, Fate.COMMITTED, None, None, None]
    assert [answer.verdicts for answer in answers] == [
        [],
        [Verdict.UNKNOWN],
        [],
        [Verdict.LATE],
        [Verdict.ENDED],
        [Verdict.WRITTEN],
    ]
    assert await good.story() == ["ExecutionStarted", "InvokeScheduled", "ExecutionAwaiting"]
    assert await stale.story() == ["ExecutionStarted"]
    assert await late.story() == ["ExecutionStarted", "SignalDelivered"]


async def test_several_appends_of_one_run_keep_their_order(store: Store) -> None:
    """Each of them sees what the one before it wrote."""
    (run,) = await started(store, "r")
    first = run.moves(task("0"), waits("0"))
    second = run.moves(resumes("0"), task("1"), waits("1"), expected=first.token, base_seq=4)

    answers = await store.append(
        [
            Append(run=run.ref, moves=first),
            Append(run=run.ref, facts=(done("0"),)),
            Append(run=run.ref, moves=second),
            Append(run=run.ref, facts=(done("1"), signal("a"))),
            Append(run=run.ref, facts=(signal("a"), signal("b"))),
        ]
    )

    assert [answer.last_seq for answer in answers] == [2, 4, 7, 10, 11]
    assert answers[4].verdicts == [Verdict.DUPLICATE, Verdict.WRITTEN]
    assert await run.story() == [
        *("ExecutionStarted", "InvokeScheduled", "ExecutionAwaiting", "InvokeStarted", "InvokeCompleted"),
        *("ExecutionResumed", "InvokeScheduled", "ExecutionAwaiting", "InvokeStarted", "InvokeCompleted"),
        *("SignalDelivered", "SignalDelivered"),
    ]
    assert (await run.see()).steps == []


async def test_a_run_is_started_and_told_something_in_one_batch(store: Store) -> None:
    """Signal-with-start: the second append finds the run that the first made."""
    ref = RunRef("default", "r")

    _, told = await store.append([Append(run=ref, start=a_start()), Append(run=ref, facts=(signal(),))])

    assert told.verdicts == [Verdict.WRITTEN]
    assert told.hints == []  # the start's hint is under way
    assert await Run(store, "r").story() == ["ExecutionStarted", "SignalDelivered"]


async def test_many_callers_at_once_each_get_their_own_answer(store: Store) -> None:
    """Whether or not calls share a transaction, nobody gets another's answer, and no number is used twice."""
    runs = await started(store, *[f"r{number}" for number in range(20)])

    answers = await asyncio.gather(
        *[run.tell(signal(f"{run.ref.run_id}-{number}")) for number in range(10) for run in runs]
    )

    assert [answer.run for answer in answers] == [run.ref for _ in range(10) for run in runs]
    for run in runs:
        assert await run.story() == ["ExecutionStarted", *["SignalDelivered"] * 10]


async def test_an_empty_batch_is_answered(store: Store) -> None:
    """Nothing asked, nothing done."""
    assert await store.append([]) == []
