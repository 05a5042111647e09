"""Limits of queues: how many runs may be under way, and what becomes of more."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from tests.conformance.store.driving import Clock, Run, a_start, ends, signal, task, waits
from tests.conformance.store.inside import Inside
from tests.conformance.store.test_publishing import check
from tidewheel.journal import events as ev
from tidewheel.store.admission import QueueLimit, QueueLoad
from tidewheel.store.append import Admit, Append, Await, Cancelled, ChildStart, Fate, Verdict
from tidewheel.store.protocol import Store
from tidewheel.store.run_queue import dequeue_and_start

CHILD = ChildStart(workflow="mail", version="", digest="", queue="main")


async def limited(store: Store, *, running: int = 1, **options: Any) -> QueueLimit:
    """Set the limit of the queue."""
    limit = QueueLimit(namespace="default", queue="main", max_running=running, **options)
    await store.admission.put(limit)
    return limit


async def started(store: Store, *names: str) -> list[Run]:
    """Start runs, one after the other."""
    runs = [Run(store, name) for name in names]
    for run in runs:
        await run.start()
    return runs


async def counts(store: Store) -> tuple[int, int]:
    """Return how many runs count as under way, and as queued."""
    (load,) = await store.admission.loads("default")
    return load.running, load.pending


async def dequeued(store: Store, **options: Any) -> list[tuple[str, str]]:
    """Let queued runs begin, and return what became of them."""
    return [(one.run_id, one.status) for one in await dequeue_and_start(store, **options)]


# Limits


async def test_a_limit_is_listed_with_what_counts_in_it(store: Store) -> None:
    """Those of other namespaces are not."""
    limit = await limited(store, max_pending=5, overload="delay", pause_s=2.5)
    await store.admission.put(QueueLimit(namespace="other", queue="main", max_running=7))
    await started(store, "a", "b")

    assert await store.admission.loads("default") == [QueueLoad(limit=limit, running=1, pending=1)]


async def test_a_limit_can_be_changed_and_removed(store: Store) -> None:
    """Removing one that is not there says so."""
    await limited(store, running=1)
    changed = await limited(store, running=2, overload="reject")

    assert [load.limit for load in await store.admission.loads("default")] == [changed]
    assert await store.admission.remove("default", "main")
    assert not await store.admission.remove("default", "main")
    assert await store.admission.loads("default") == []


async def test_open_runs_count_in_a_limit_that_is_set_later(store: Store) -> None:
    """But not those that have ended, nor child runs: their parents count."""
    (parent, over, _) = await started(store, "parent", "over", "elsewhere")
    await over.move(ends())
    await parent.move(task("0", kind="workflow", dispatch="queued"), waits("0"), children={"0": CHILD})
    await store.admission.put(QueueLimit(namespace="default", queue="other", max_running=1))

    await limited(store, running=2)

    assert await started(store, "late")
    assert [(load.running, load.pending) for load in await store.admission.loads("default")] == [
        (2, 1),
        (0, 0),
    ]


async def test_a_run_that_was_there_goes_on_when_it_counts(store: Store) -> None:
    """Whoever remembers it is told that it has changed, and does what it did."""
    (run,) = await started(store, "r")
    await run.move(task("0", dispatch="inline"), waits("0"))
    await limited(store, running=1)
    await run.see()

    answer = await run.tell(signal())

    assert answer.verdicts == [Verdict.WRITTEN]
    assert (await run.record()).place == "running"


# Reject


async def test_a_start_over_the_limit_is_refused_and_writes_nothing(inside: Inside) -> None:
    """The answer says when to ask again."""
    await limited(inside.store, overload="reject", pause_s=3.0)
    await started(inside.store, "a")
    before = inside.row_counts()

    answer = await Run(inside.store, "b").start()

    assert answer.refused is not None
    assert (answer.refused.queue, answer.refused.retry_after_s) == ("main", 3.0)
    assert "1 of 1 are under way" in answer.refused.reason
    assert inside.row_counts() == before
    assert await inside.store.find(Run(inside.store, "b").ref) is None


async def test_first_moves_over_the_limit_are_refused_with_their_start(inside: Inside) -> None:
    """A worker that has shown the input to the code learns that it was not written."""
    await limited(inside.store, overload="reject")
    await started(inside.store, "a")
    before = inside.row_counts()

    answer = await Run(inside.store, "b").open(task("0", dispatch="inline"), waits("0"))

    assert answer.refused is not None
    assert answer.fate is Fate.STALE
    assert inside.row_counts() == before


async def test_a_run_that_is_there_is_found_over_the_limit(store: Store) -> None:
    """Asking again for a run that was started refuses nobody."""
    await limited(store, overload="reject")
    await Run(store, "a").start(1, idempotency_key="k")

    again = await Run(store, "b").start(2, idempotency_key="k")

    assert (again.refused, again.existed, again.mismatch) == (None, True, True)
    assert again.run.run_id == "a"


async def test_an_end_makes_room(store: Store) -> None:
    """Its answer says so, since somebody may wait for it."""
    await limited(store, overload="reject")
    (first,) = await started(store, "a")

    answer = await first.move(ends())

    assert [end.frees_place for end in answer.ended] == [True]
    assert (await Run(store, "b").start()).refused is None


async def test_other_queues_and_namespaces_are_not_concerned(store: Store) -> None:
    """A limit is of one queue in one namespace."""
    await limited(store, running=0, overload="reject")

    elsewhere = await Run(store, "a").start(queue="other")
    apart = await Run(store, "a", namespace="other").start()

    assert (elsewhere.refused, apart.refused) == (None, None)
    assert (await Run(store, "a").record()).place is None


async def test_a_child_run_is_never_held_up(store: Store) -> None:
    """Its parent has a place and waits for it: the two would wait for each other."""
    await limited(store, overload="reject")
    (parent,) = await started(store, "parent")

    answer = await parent.move(
        task("0", kind="workflow", dispatch="queued"), waits("0"), children={"0": CHILD}
    )

    assert answer.fate is Fate.COMMITTED
    assert (await Run(store, "parent:0").record()).status == "RUNNING"
    assert await counts(store) == (1, 0)


async def test_starts_of_one_transaction_count_one_after_the_other(store: Store) -> None:
    """None of them is let in twice."""
    await limited(store, running=2, max_pending=1)
    requests = [Append(run=Run(store, f"r{n}").ref, start=a_start()) for n in range(5)]

    answers = await store.append(requests)

    assert [answer.refused is not None for answer in answers] == [False, False, False, True, True]
    assert await counts(store) == (2, 1)


# Queue


async def test_a_run_over_the_limit_is_queued(inside: Inside) -> None:
    """It is there, it is pending, and nobody is told to activate it."""
    await limited(inside.store)
    await started(inside.store, "a")
    run = Run(inside.store, "b")

    answer = await run.start(7)

    record = await run.record()
    (first,) = await run.journal()
    assert (answer.refused, answer.existed, answer.hints) == (None, False, [])
    assert (record.status, record.place, record.wake_at, record.takes_turns) == (
        "PENDING",
        "queued",
        None,
        False,
    )
    assert isinstance(first.event, ev.ExecutionStarted)
    assert first.event.admission == "queued"
    assert inside.outbox(run.ref) == []


async def test_first_moves_of_a_queued_run_are_not_written(store: Store) -> None:
    """Only the start is, and who waits for its end."""
    await limited(store)
    await started(store, "a")
    run = Run(store, "b")

    answer = await run.open(task("0", dispatch="inline"), waits("0"), mark=Await(reply_to="client-1"))

    record = await run.record()
    assert (answer.fate, answer.refused) == (Fate.STALE, None)
    assert await run.story() == ["ExecutionStarted"]
    assert (record.status, record.reply_to) == ("PENDING", ("client-1",))


async def test_over_max_pending_a_start_is_refused(store: Store) -> None:
    """The time to ask again grows with how many wait."""
    await limited(store, running=2, max_pending=4, pause_s=1.0)
    await started(store, *"abcdef")

    answer = await Run(store, "g").start()

    assert answer.refused is not None
    assert answer.refused.retry_after_s == 3.0
    assert "4 of 4 are queued" in answer.refused.reason


async def test_the_oldest_is_admitted_when_there_is_room(store: Store, clock: Clock) -> None:
    """It is written, counted, published, and its workers are told."""
    await limited(store)
    (first,) = await started(store, "a")
    for name in "bc":
        clock.advance(1)
        await started(store, name)
    assert await dequeued(store) == []
    await first.move(ends())

    (found,) = await dequeue_and_start(store)

    run = Run(store, "b")
    assert (found.run_id, found.status) == ("b", "STARTED")
    assert found.answer is not None
    assert [hint.run.run_id for hint in found.answer.hints] == ["b"]
    assert await run.story() == ["ExecutionStarted", "RunAdmitted"]
    record = await run.record()
    assert (record.status, record.place) == ("RUNNING", "running")
    assert record.wake_at is not None
    assert await counts(store) == (1, 1)
    assert await dequeued(store) == []


async def test_an_admitted_run_goes_on_like_any_other(inside: Inside, clock: Clock) -> None:
    """And what it publishes is what the whole journal gives: ``RunStarted`` with its admission."""
    await limited(inside.store)
    (first,) = await started(inside.store, "a")
    clock.advance(1)
    await started(inside.store, "b")
    await first.move(ends())
    await dequeue_and_start(inside.store)
    run = Run(inside.store, "b")
    await run.see()

    await run.move(task("0", dispatch="inline"), waits("0"))

    await check(inside, run)
    assert (await run.record()).started_id is not None


async def test_a_start_does_not_overtake_those_that_are_queued(store: Store, clock: Clock) -> None:
    """Room that an end made is for whoever waits."""
    await limited(store)
    (first,) = await started(store, "a")
    clock.advance(1)
    await started(store, "b")
    await first.move(ends())
    clock.advance(1)

    await started(store, "c")

    assert (await Run(store, "c").record()).status == "PENDING"
    assert await dequeued(store) == [("b", "STARTED")]


async def test_admitting_again_changes_nothing(store: Store, clock: Clock) -> None:
    """Whoever asks for what somebody else did meanwhile, or for a run that is not queued, is answered."""
    await limited(store)
    (first,) = await started(store, "a")
    clock.advance(1)
    await started(store, "b")
    await first.move(ends())
    run = Run(store, "b")

    answers = [await run.mark(Admit(queue="main")) for _ in range(3)]

    assert [answer.admitted for answer in answers] == [True, False, False]
    assert not (await first.mark(Admit(queue="main"))).admitted
    assert await run.story() == ["ExecutionStarted", "RunAdmitted"]


async def test_nobody_is_admitted_without_room(store: Store, clock: Clock) -> None:
    """Also where somebody asks for a run by its name."""
    await limited(store)
    await started(store, "a")
    clock.advance(1)
    (run,) = await started(store, "b")

    answer = await run.mark(Admit(queue="main"))

    assert not answer.admitted
    assert (await run.record()).status == "PENDING"


async def test_admissions_of_one_transaction_count_one_after_the_other(store: Store, clock: Clock) -> None:
    """Who read that there is room for two may be one of two who did."""
    await limited(store)
    (first,) = await started(store, "a")
    clock.advance(1)
    await started(store, "b", "c")
    await first.move(ends())

    answers = await store.append([Append(run=Run(store, n).ref, mark=Admit(queue="main")) for n in "bc"])

    assert [answer.admitted for answer in answers] == [True, False]
    assert await counts(store) == (1, 1)


async def test_a_batch_is_bounded(store: Store, clock: Clock) -> None:
    """And the next one goes on."""
    await limited(store, running=0)
    for name in "abcde":
        clock.advance(1)
        await started(store, name)
    await limited(store, running=10)

    first = await dequeued(store, batch_max=3)
    second = await dequeued(store, batch_max=3)

    assert first == [(name, "STARTED") for name in "abc"]
    assert second == [(name, "STARTED") for name in "de"]


async def test_each_queue_has_its_own_room(store: Store, clock: Clock) -> None:
    """A full one does not hold up another."""
    await limited(store, running=0)
    await store.admission.put(QueueLimit(namespace="default", queue="other", max_running=0))
    await Run(store, "a").start()
    clock.advance(1)
    await Run(store, "b").start(queue="other")
    await store.admission.put(QueueLimit(namespace="default", queue="other", max_running=1))

    assert await dequeued(store) == [("b", "STARTED")]


async def test_without_its_limit_a_queue_lets_all_begin(store: Store, clock: Clock) -> None:
    """Nothing of it is counted from then on."""
    await limited(store, running=0)
    for name in "abc":
        clock.advance(1)
        await started(store, name)
    await store.admission.remove("default", "main")

    found = await dequeued(store)

    assert found == [(name, "STARTED") for name in "abc"]
    assert (await Run(store, "a").record()).place is None


# Meanwhile


async def test_a_queued_run_can_be_cancelled(inside: Inside, clock: Clock) -> None:
    """It ends, no code has run, and it counts no more."""
    await limited(inside.store)
    await started(inside.store, "a")
    clock.advance(1)
    (run,) = await started(inside.store, "b")

    answer = await run.tell(Cancelled(reason="not needed"))

    record = await run.record()
    assert await run.story() == ["ExecutionStarted", "CancelRequested", "ExecutionCancelled"]
    assert [(end.run.run_id, end.frees_place) for end in answer.ended] == [("b", False)]
    assert (record.status, record.place) == ("CANCELLED", None)
    assert await counts(inside.store) == (1, 0)
    assert await dequeued(inside.store) == []
    await check(inside, run)


async def test_signals_to_a_queued_run_are_kept(store: Store, clock: Clock) -> None:
    """They wake nobody before it is admitted; then it has them."""
    await limited(store)
    (first,) = await started(store, "a")
    clock.advance(1)
    (run,) = await started(store, "b")

    answer = await run.tell(signal("k1"))
    waiting = await run.record()
    await first.move(ends())
    await dequeue_and_start(store)

    assert (answer.verdicts, answer.hints, waiting.wake_at) == ([Verdict.WRITTEN], [], None)
    assert await run.story() == ["ExecutionStarted", "SignalDelivered", "RunAdmitted"]


async def test_a_queued_run_that_is_asked_for_again_stays_queued(store: Store) -> None:
    """A second start finds it, and hints at nothing."""
    await limited(store, running=0)
    await Run(store, "a").start(1)

    again = await Run(store, "a").start(1)

    assert (again.existed, again.mismatch, again.hints) == (True, False, [])
    assert await counts(store) == (0, 1)


async def test_nothing_of_a_queued_run_is_due(store: Store, clock: Clock) -> None:
    """The keeper has no hint to repeat, however long it waits."""
    await limited(store, running=0)
    await started(store, "a")
    clock.advance(3600)

    due = await store.claim_due(limit=10)

    assert (due.hints, due.next_at) == ([], None)


async def test_a_segment_that_continues_keeps_its_place(store: Store) -> None:
    """A run is one run until it ends."""
    await limited(store)
    (run,) = await started(store, "a")

    await run.move(ev.ExecutionContinued(input=[2], next_position=1), ev.ExecutionStarted(input=[2]))

    assert await counts(store) == (1, 0)
    assert (await run.record()).place == "running"


# Delay


async def test_a_delayed_run_is_admitted_at_its_time(store: Store, clock: Clock) -> None:
    """Not before, though there is room; the more are over, the later it is."""
    await limited(store, running=1, overload="delay", pause_s=10.0)
    (first,) = await started(store, "a")
    await started(store, "b", "c")
    await first.move(ends())
    due = [(await Run(store, name).record()).admit_at for name in "bc"]

    early = await dequeued(store)
    asked = await Run(store, "b").mark(Admit(queue="main"))
    clock.advance(10)
    at_its_time = await dequeued(store)

    assert due == [clock.now - dt.timedelta(seconds=10) + dt.timedelta(seconds=s) for s in (10, 20)]
    assert (early, asked.admitted) == ([], False)
    assert at_its_time == [("b", "STARTED")]


async def test_a_delayed_run_waits_on_while_there_is_no_room(store: Store, clock: Clock) -> None:
    """Its time is when it may begin, not when it must."""
    await limited(store, overload="delay", pause_s=10.0)
    await started(store, "a", "b")
    clock.advance(60)

    assert await dequeued(store) == []


@pytest.mark.parametrize("overload", ["queue", "delay"])
async def test_a_queue_of_no_run_at_all_takes_starts(store: Store, overload: Any) -> None:
    """``max_running`` of 0 lets nothing begin: what runs is finished, what comes waits."""
    await limited(store, running=0, overload=overload)

    (run,) = await started(store, "a")

    assert (await run.record()).status == "PENDING"
    assert await dequeued(store) == []
