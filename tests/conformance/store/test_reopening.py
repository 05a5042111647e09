"""First moves of a run that is there: their own repeated, or somebody else's run; nothing is written."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from tests.conformance.store.driving import Run, a_start, ends, signal, task, waits
from tests.conformance.store.inside import Inside
from tests.conformance.store.test_opening import CHILD, IN_AN_HOUR, a_step
from tidewheel.journal import events as ev
from tidewheel.store.append import Await, Fate, Park
from tidewheel.store.protocol import RunFilter, Store
from tidewheel.store.records import RunRef

# The same again


async def test_the_same_append_again_finds_itself(inside: Inside) -> None:
    """Its reply was lost: it is told so, and nothing is written a second time."""
    run = Run(inside.store, "r")
    request = run.opening(a_step(), waits("0"), start=a_start(1), mark=Await(reply_to="client-1"))
    await inside.store.append([request])
    before = await run.record()

    (answer,) = await inside.store.append([request])

    assert (answer.fate, answer.existed, answer.mismatch) == (Fate.REPEATED, True, False)
    assert (answer.last_seq, answer.hints, answer.ended) == (2, [], [])
    assert await run.record() == before
    assert len(inside.passages(run.ref)) == 1


async def test_the_same_append_is_found_whatever_landed_since(store: Store) -> None:
    """Facts of others leave the fence as it is: the moves are there."""
    run = Run(store, "r")
    request = run.opening(a_step(), waits("0"))
    await store.append([request])
    await run.tell(signal())

    (answer,) = await store.append([request])

    assert (answer.fate, answer.last_seq) == (Fate.REPEATED, 3)
    assert await run.story() == [
        "ExecutionStarted",
        "InvokeScheduled",
        "ExecutionAwaiting",
        "SignalDelivered",
    ]


async def test_who_waits_is_told_again_of_a_run_that_ended_in_its_first_moves(store: Store) -> None:
    """Whoever wrote it may not have come to tell them."""
    run = Run(store, "r")
    request = run.opening(ends(), mark=Await(reply_to="client-1"))
    await store.append([request])

    (answer,) = await store.append([request])

    assert answer.fate is Fate.REPEATED
    assert {(end.run, end.last_seq, end.reply_to) for end in answer.ended} == {(run.ref, 1, ("client-1",))}
    assert await run.story() == ["ExecutionStarted", "ExecutionCompleted"]


async def test_the_same_append_twice_in_a_batch_is_written_once(store: Store) -> None:
    """An append sees what the one before it in the batch did."""
    run = Run(store, "r")
    request = run.opening(a_step(), waits("0"))

    answers = await store.append([request, request])

    assert [answer.fate for answer in answers] == [Fate.COMMITTED, Fate.REPEATED]
    assert await run.story() == ["ExecutionStarted", "InvokeScheduled", "ExecutionAwaiting"]


# A run that is there


async def _only_started(run: Run) -> None:
    await run.start(1)


async def _waiting(run: Run) -> None:
    await run.start(1)
    await run.move(a_step(), waits("0"))


async def _opened(run: Run) -> None:
    await run.open(a_step(), waits("0"), start=a_start(1))


async def _signalled(run: Run) -> None:
    await _opened(run)
    await run.tell(signal())


async def _parked(run: Run) -> None:
    await _waiting(run)
    await run.mark(Park(kind="quarantine", reason="it kills its workers"))


async def _ended(run: Run) -> None:
    await run.start(1)
    await run.move(ends())


async def _opened_and_ended(run: Run) -> None:
    await run.open(ends(), start=a_start(1))


WAS_THERE: dict[str, tuple[Callable[[Run], Awaitable[None]], Fate]] = {
    "started": (_only_started, Fate.STALE),
    "waiting": (_waiting, Fate.STALE),
    "opened": (_opened, Fate.STALE),
    "signalled": (_signalled, Fate.STALE),
    "parked": (_parked, Fate.STALE),
    "ended": (_ended, Fate.ENDED),
    "opened and ended": (_opened_and_ended, Fate.ENDED),
}
STARTS = {
    "the same": (a_start(1), False),
    "another input": (a_start(2), True),
    "another workflow": (a_start(1, workflow="mail"), True),
}


@pytest.mark.parametrize("other", STARTS)
@pytest.mark.parametrize("state", WAS_THERE)
async def test_first_moves_of_a_run_that_was_there_are_dropped(
    inside: Inside, state: str, other: str
) -> None:
    """Whatever they ask for, nothing is written: they rest on a start that is not the run's.

    Whoever asked is told that the run was there, and whether it was asked for something else.
    """
    bring_about, fate = WAS_THERE[state]
    start, mismatch = STARTS[other]
    run, late = Run(inside.store, "r"), Run(inside.store, "r")
    await bring_about(run)
    before, journal, counts = await run.record(), await run.journal(), inside.row_counts()

    answer = await late.open(
        a_step("0", key="k"),
        ev.TimerScheduled(promise_id="1", fire_at=IN_AN_HOUR),
        ev.PromiseCreated(promise_id="2", name="yes"),
        task("3", kind="workflow", dispatch="queued"),
        waits("0"),
        children={"3": CHILD},
        start=start,
    )

    assert (answer.fate, answer.existed, answer.mismatch) == (fate, True, mismatch)
    assert (answer.run, answer.last_seq, answer.landed) == (run.ref, before.last_seq, [])
    assert (await run.record(), await run.journal(), inside.row_counts()) == (before, journal, counts)
    assert await inside.store.find(RunRef("default", "r:3")) is None
    # As for a plain start: whoever started it may not have come to publish the hint.
    assert [hint.run for hint in answer.hints] == ([run.ref] if before.wake_at is not None else [])


@pytest.mark.parametrize("state", ["started", "opened"])
async def test_who_waits_for_a_run_that_was_there_is_noted(store: Store, state: str) -> None:
    """The moves are dropped, the wish to be told is not."""
    run, late = Run(store, "r"), Run(store, "r")
    await WAS_THERE[state][0](run)

    answer = await late.open(a_step(), waits("0"), start=a_start(1), mark=Await(reply_to="client-2"))

    assert (answer.fate, answer.ended) == (Fate.STALE, [])
    assert (await run.record()).reply_to == ("client-2",)


async def test_who_waits_for_a_run_that_has_ended_is_told_at_once(store: Store) -> None:
    """As by a plain start."""
    run, late = Run(store, "r"), Run(store, "r")
    await _ended(run)

    answer = await late.open(ends("another"), start=a_start(1), mark=Await(reply_to="client-2"))

    assert answer.fate is Fate.ENDED
    assert [(end.run, end.last_seq, end.reply_to) for end in answer.ended] == [(run.ref, 1, ("client-2",))]


async def test_first_moves_that_say_they_rest_on_the_run_that_is_there_are_dropped_too(store: Store) -> None:
    """A start that was never activated has the fence they name; its code may have been shown otherwise."""
    run, late = Run(store, "r"), Run(store, "r")
    await run.start(1)

    answer = await late.open(a_step(), waits("0"), start=a_start(1), expected=b"", base_seq=0)

    assert answer.fate is Fate.STALE
    assert await run.story() == ["ExecutionStarted"]


async def test_of_two_in_a_batch_the_first_is_the_run(store: Store) -> None:
    """Two workers were given the command: the second is told, and loads what is there."""
    first, second = Run(store, "r"), Run(store, "r")

    answers = await store.append(
        [first.opening(a_step(), waits("0")), second.opening(a_step(), waits("0"), owner="worker-2")]
    )

    assert [(answer.fate, answer.existed) for answer in answers] == [
        (Fate.COMMITTED, False),
        (Fate.STALE, True),
    ]
    assert (await first.step()).owner == "worker-1"


async def test_of_many_at_once_one_is_the_run(store: Store) -> None:
    """And as many plain starts next to them find it, or are found."""
    runs = [Run(store, "r") for _ in range(40)]

    answers = await asyncio.gather(
        *(
            run.open(a_step(), waits("0"), start=a_start(1)) if place % 2 else run.start(1)
            for place, run in enumerate(runs)
        )
    )

    assert [answer.existed for answer in answers].count(False) == 1
    assert not any(answer.mismatch for answer in answers)
    fates = [answer.fate for answer in answers]
    assert fates.count(Fate.COMMITTED) == sum(not one.existed for one in answers if one.fate is not None)
    story = await runs[0].story()
    assert story in (
        ["ExecutionStarted"],
        ["ExecutionStarted", "InvokeScheduled", "ExecutionAwaiting"],
    )
    assert len(await store.runs(RunFilter(namespace="default", limit=10))) == 1


async def test_an_idempotency_key_finds_its_run(store: Store) -> None:
    """First moves under another id are those of the run that has the key: stale, or its own repeated."""
    first, second = Run(store, "first"), Run(store, "second")
    keyed = a_start(1, idempotency_key="once")
    request = first.opening(a_step(), waits("0"), start=keyed)
    await store.append([request])

    other = await second.open(a_step(), waits("0"), start=keyed)
    (again,) = await store.append([msgspec.structs.replace(request, run=second.ref)])

    assert (other.run, other.existed, other.fate) == (first.ref, True, Fate.STALE)
    assert (again.run, again.fate) == (first.ref, Fate.REPEATED)
    assert await store.find(second.ref) is None


async def test_namespaces_are_apart(store: Store) -> None:
    """A run of the same name elsewhere is another one."""
    here, there = Run(store, "r", "here"), Run(store, "r", "there")
    await here.open(a_step(), waits("0"))

    answer = await there.open(a_step(), waits("0"))

    assert (answer.fate, answer.existed) == (Fate.COMMITTED, False)


async def test_the_others_of_a_batch_are_not_disturbed(store: Store) -> None:
    """A refusal is an answer: those beside it are written."""
    was_there, new, plain = Run(store, "a"), Run(store, "b"), Run(store, "c")
    await was_there.start(1)

    answers = await store.append(
        [
            Run(store, "a").opening(a_step(), waits("0"), start=a_start(2)),
            new.opening(a_step(), waits("0")),
            plain.opening(ends(), mark=Await(reply_to="client-1")),
        ]
    )

    assert [answer.fate for answer in answers] == [Fate.STALE, Fate.COMMITTED, Fate.COMMITTED]
    assert [answer.mismatch for answer in answers] == [True, False, False]
    assert [len(await run.story()) for run in (was_there, new, plain)] == [1, 3, 2]
