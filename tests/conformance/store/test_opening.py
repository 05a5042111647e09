"""A run that was activated before it is there: its start and its first moves are one append, or nothing."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec
import pytest

from tests.conformance.store.driving import (
    BROKEN,
    NOW,
    Clock,
    Run,
    a_start,
    done,
    ends,
    ok,
    resumes,
    signal,
    task,
    waits,
)
from tests.conformance.store.inside import Inside
from tests.conformance.store.test_publishing import check
from tidewheel.journal import events as ev
from tidewheel.store.append import Await, Cancelled, ChildStart, Fate, Resolved, Verdict
from tidewheel.store.protocol import Store

CHILD = ChildStart(workflow="mail", version="3", digest="d", queue="post")
CONTINUES = (ev.ExecutionContinued(input=[2], next_position=5), ev.ExecutionStarted(input=[2]))
IN_AN_HOUR = NOW + dt.timedelta(hours=1)


def a_step(path: str = "0", **options: Any) -> ev.InvokeScheduled:
    """Return the schedule of a step that whoever writes it executes."""
    return task(path, dispatch="inline", **options)


# A run that is not there


async def test_a_new_run_has_its_start_and_its_first_moves(inside: Inside) -> None:
    """One commit and one row of the journal have both, in the order in which they came about."""
    run = Run(inside.store, "r")
    start = a_start({"sku": 7}, version="2", digest="abc")

    answer = await run.open(a_step(), waits("0"), start=start, message_id="m-1")

    assert (answer.fate, answer.existed, answer.mismatch, answer.last_seq) == (
        Fate.COMMITTED,
        False,
        False,
        2,
    )
    assert answer.run == run.ref
    assert await run.story() == ["ExecutionStarted", "InvokeScheduled", "ExecutionAwaiting"]
    assert [(row.first_seq, row.last_seq) for row in inside.passages(run.ref)] == [(0, 2)]
    first = (await run.journal())[0]
    assert isinstance(first.event, ev.ExecutionStarted)
    assert (first.event.input, first.event.version, first.event.component_digest) == (
        [{"sku": 7}],
        "2",
        "abc",
    )
    assert first.at == answer.now


async def test_nobody_is_woken_for_it(store: Store, clock: Clock) -> None:
    """Whoever wrote it goes on with it: there is no hint, no wake-up is owed, the keeper finds nothing."""
    run = Run(store, "r")

    answer = await run.open(a_step(), waits("0"))

    record = await run.record()
    assert (answer.hints, answer.landed, answer.ended) == ([], [], [])
    assert (record.wake_at, record.hints, record.status) == (None, 0, "RUNNING")
    clock.advance(20)
    assert (await store.claim_due(limit=10)).hints == []


async def test_its_row_is_that_of_a_run_that_moved_on(store: Store) -> None:
    """The fence is the moves', the step is open and its worker's, the message that brought it is known."""
    run = Run(store, "r")

    answer = await run.open(
        a_step(), waits("0"), start=a_start(1, workflow="mail", queue="post", version="2"), message_id="m-1"
    )

    record, step = await run.record(), await run.step()
    assert record.token == run.token != b""
    assert (record.workflow, record.queue, record.version, record.last_seq) == ("mail", "post", "2", 2)
    assert (record.owner_message, record.created_at, record.updated_at) == ("m-1", answer.now, answer.now)
    assert (step.owner, step.state, step.attempt, step.scheduled_seq) == ("worker-1", "scheduled", 0, 1)


async def test_it_is_as_if_it_had_been_started_and_then_moved(store: Store) -> None:
    """Neither what is read of the run nor what is loaded tells which way it came."""
    together, apart = Run(store, "together"), Run(store, "apart")
    timer = ev.TimerScheduled(promise_id="1", fire_at=IN_AN_HOUR)

    await together.open(a_step(), timer, waits("0", "1"), start=a_start(1))
    await apart.start(1)
    await apart.move(a_step(), timer, waits("0", "1"))

    found = []
    for run in (together, apart):
        loaded = await run.see()
        plain = msgspec.structs.replace(loaded.run, key=b"", run_id="", token=b"", started_id=None)
        events = [msgspec.structs.replace(entry.event, **_nameless(entry.event)) for entry in loaded.entries]
        found.append((plain, events, loaded.steps, loaded.timers))
    assert found[0] == found[1]


def _nameless(event: ev.Event) -> dict[str, Any]:
    return {"run_id": ""} if isinstance(event, ev.ExecutionStarted) else {}


async def test_its_start_says_when_its_code_began(store: Store) -> None:
    """The code was shown that time before anything was written; without one it is the commit's."""
    shown, plain = Run(store, "shown"), Run(store, "plain")
    earlier = NOW - dt.timedelta(seconds=3)

    await shown.open(a_step(), waits("0"), start=a_start(now=earlier))
    await plain.open(a_step(), waits("0"))

    starts = [(await run.journal())[0] for run in (shown, plain)]
    assert [(entry.at, getattr(entry.event, "now", None)) for entry in starts] == [
        (NOW, earlier),
        (NOW, NOW),
    ]


async def test_it_goes_on_from_its_first_moves(store: Store) -> None:
    """The next activation names their token, and one that does not is stale."""
    run, rival = Run(store, "r"), Run(store, "r")
    await run.open(a_step(), waits("0"))
    rival.seen = 0

    late = await rival.move(a_step(), waits("0"))
    answer = await run.move(resumes("0"), ends("done"), facts=[done("0", value=1)])

    assert (late.fate, answer.fate, answer.verdicts) == (Fate.STALE, Fate.COMMITTED, [Verdict.WRITTEN])
    assert (await run.story())[3:] == [
        "InvokeStarted",
        "InvokeCompleted",
        "ExecutionResumed",
        "ExecutionCompleted",
    ]


async def test_who_waits_for_it_is_told_when_it_ends(store: Store) -> None:
    """The client that the start names is kept through the first moves."""
    run = Run(store, "r")

    opened = await run.open(a_step(), waits("0"), mark=Await(reply_to="client-1"))
    kept = (await run.record()).reply_to
    ended = await run.move(resumes("0"), ends(), facts=[done("0")])

    assert (opened.ended, kept) == ([], ("client-1",))
    assert [(end.run, end.reply_to) for end in ended.ended] == [(run.ref, ("client-1",))]


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (ends({"sent": True}), "COMPLETED"),
        (ev.ExecutionFailed(error=BROKEN), "FAILED"),
        (ev.ExecutionCancelled(reason="enough"), "CANCELLED"),
    ],
    ids=["completed", "failed", "cancelled"],
)
async def test_a_run_may_end_in_its_first_moves(
    inside: Inside, clock: Clock, end: ev.Event, status: str
) -> None:
    """Who waits is told by what, with that very answer; nothing is owed, and nothing stays open."""
    run = Run(inside.store, "r")

    answer = await run.open(a_step(), end, mark=Await(reply_to="client-1"))

    (told,) = answer.ended
    assert (told.run, told.last_seq, told.reply_to, told.event) == (run.ref, 2, ("client-1",), end)
    assert (answer.fate, answer.hints) == (Fate.COMMITTED, [])
    record = await run.record()
    assert (record.status, record.ended_at, record.wake_at, record.owner) == (status, answer.now, None, None)
    assert not await run.has_step()
    clock.advance(100)
    assert (await inside.store.claim_due(limit=10)).hints == []


async def test_a_cancel_after_its_first_moves_is_for_its_code(store: Store) -> None:
    """Code has run that can be asked to stop: nobody ends it over its head."""
    run = Run(store, "r")
    await run.open(a_step(), waits("0"))

    answer = await run.tell(Cancelled(reason="enough"))

    assert (await run.story())[-1] == "CancelRequested"
    assert ([hint.run for hint in answer.hints], answer.ended) == ([run.ref], [])


async def test_a_signal_after_its_first_moves_wakes_it(store: Store) -> None:
    """A run that waits owes nothing, until something happens to it."""
    run = Run(store, "r")
    await run.open(waits())

    answer = await run.tell(signal())

    assert [hint.run for hint in answer.hints] == [run.ref]
    assert (await run.record()).wake_at is not None


# What first moves may hold


async def test_a_queued_step_is_hinted_at(store: Store) -> None:
    """Workers of its queue are told, the run's own are not."""
    run = Run(store, "r")

    answer = await run.open(task("0", queue="heavy", dispatch="queued"), waits("0"))

    assert [(hint.run, hint.queue, hint.path, hint.attempt) for hint in answer.hints] == [
        (run.ref, "heavy", "0", 1)
    ]
    assert (await run.step()).owner is None
    assert (await run.record()).wake_at is None


async def test_a_timer_is_set(store: Store, clock: Clock) -> None:
    """The keeper comes upon it when it is due."""
    run = Run(store, "r")

    await run.open(ev.TimerScheduled(promise_id="0", fire_at=NOW + dt.timedelta(minutes=5)), waits("0"))

    assert [timer.path for timer in (await run.see()).timers] == ["0"]
    before = await store.claim_due(limit=10)
    clock.advance(301)
    after = await store.claim_due(limit=10)
    assert [(one.run, one.path) for one in before.timers] == []
    assert [(one.run, one.path) for one in after.timers] == [(run.ref, "0")]


async def test_a_promise_can_be_resolved(store: Store) -> None:
    """Others know it by its name."""
    run = Run(store, "r")
    await run.open(ev.PromiseCreated(promise_id="0", name="approval"), waits("0"))

    answer = await run.tell(Resolved(name="approval", result=ok("yes"), key="k"))
    other = await run.tell(Resolved(name="another", result=ok("yes"), key="k2"))

    assert (answer.verdicts, other.verdicts) == ([Verdict.WRITTEN], [Verdict.UNKNOWN])
    assert [hint.run for hint in answer.hints] == [run.ref]


async def test_a_child_is_started(store: Store) -> None:
    """One commit has the run, its child, and that the child was started; the child's workers are told."""
    run, child = Run(store, "r"), Run(store, "r:0")
    asked = task("0", kind="workflow", function_name="mail", input=["letter"], dispatch="queued")

    answer = await run.open(asked, waits("0"), children={"0": CHILD})

    assert [(hint.run, hint.queue, hint.path) for hint in answer.hints] == [(child.ref, "post", None)]
    assert await run.story() == ["ExecutionStarted", "InvokeScheduled", "ExecutionAwaiting", "InvokeStarted"]
    (first,) = await child.journal()
    assert isinstance(first.event, ev.ExecutionStarted)
    assert (first.event.input, first.event.parent_id) == (["letter"], "r")
    assert (await child.record()).parent_key == (await run.record()).key
    assert (await child.record()).wake_at is not None
    assert answer.last_seq == (await run.record()).last_seq == 3


async def test_a_child_that_ends_is_its_parents_completion(store: Store) -> None:
    """It finds its parent, though both came with one append."""
    run, child = Run(store, "r"), Run(store, "r:0")
    await run.open(task("0", kind="workflow", dispatch="queued"), waits("0"), children={"0": CHILD})
    await child.see()

    answer = await child.move(ends("sent"))

    assert [hint.run for hint in answer.hints] == [run.ref]
    assert (await run.story())[-1] == "InvokeCompleted"


async def test_a_segment_that_continues_at_once_owes_a_turn(store: Store) -> None:
    """The next one's code has not been shown anything."""
    run = Run(store, "r")

    answer = await run.open(a_step(), *CONTINUES)

    record = await run.record()
    assert [hint.run for hint in answer.hints] == [run.ref]
    assert (record.segment_seq, record.first_position, record.last_seq) == (3, 5, 3)
    assert record.wake_at is not None
    assert not await run.has_step()


async def test_a_step_that_is_given_up_at_once_is_begun_by_nobody(store: Store) -> None:
    """Its schedule is there, and its owner is not."""
    run = Run(store, "r")

    await run.open(a_step("0"), a_step("1"), waits("1"), abandoned=("0",))

    given_up, wanted = await run.step("0"), await run.step("1")
    assert (given_up.abandoned, given_up.owner) == (True, None)
    assert (wanted.abandoned, wanted.owner) == (False, "worker-1")


FIRST_MOVES: dict[str, tuple[tuple[ev.Event, ...], dict[str, Any]]] = {
    "a step": ((a_step(), waits("0")), {}),
    "a wait alone": ((waits(),), {}),
    "more steps than a row holds": ((*(a_step(str(place)) for place in range(40)), waits("0")), {}),
    "queued": ((task("0", dispatch="queued", queue="heavy"), waits("0")), {}),
    "a timer": ((ev.TimerScheduled(promise_id="0", fire_at=IN_AN_HOUR), waits("0")), {}),
    "a promise": ((ev.PromiseCreated(promise_id="0", name="yes"), waits("0")), {}),
    "a child": (
        (task("0", kind="workflow", dispatch="queued"), waits("0")),
        {"children": {"0": CHILD}},
    ),
    "an end": ((ends(1),), {}),
    "an end with something open": (
        (a_step(), ev.TimerScheduled(promise_id="1", fire_at=IN_AN_HOUR), ends(1)),
        {},
    ),
    "a failure": ((ev.ExecutionFailed(error=BROKEN),), {}),
    "the next segment": ((a_step(), *CONTINUES), {}),
}


@pytest.mark.parametrize("first", FIRST_MOVES)
async def test_what_is_published_is_what_the_whole_journal_publishes(inside: Inside, first: str) -> None:
    """The row that holds the start and the moves tells of both, and its range is owed to the bus once."""
    run = Run(inside.store, "r")
    events, options = FIRST_MOVES[first]

    answer = await run.open(*events, start=a_start(1, version="2"), **options)

    assert answer.fate is Fate.COMMITTED
    assert len(inside.passages(run.ref)) == 1
    await check(inside, run)


async def test_what_is_published_later_goes_on_from_there(inside: Inside) -> None:
    """The chain of public events and the keys of steps go on from the first moves."""
    run = Run(inside.store, "r")
    await run.open(a_step("0"), a_step("1"), waits("0"))

    await run.move(resumes("0"), a_step("2", key="charge"), waits("1"), facts=[done("0")])
    await run.move(resumes("1"), ends(), facts=[done("1"), done("2")])

    await check(inside, run)


@pytest.mark.parametrize("first", FIRST_MOVES)
async def test_no_more_is_left_in_the_tables_than_by_a_start_and_a_move(inside: Inside, first: str) -> None:
    """There is one row of the journal where two appends make two; but for the outbox all else is equal."""
    events, options = FIRST_MOVES[first]
    together, apart = Run(inside.store, "together"), Run(inside.store, "apart")

    await together.open(*events, **options)
    by_one = inside.row_counts()
    await apart.start()
    await apart.move(*events, **options)
    by_two = {table: count - by_one[table] for table, count in inside.row_counts().items()}

    assert by_one["journal"] == by_two["journal"] - 1
    assert {table: count for table, count in by_one.items() if table not in ("journal", "outbox")} == {
        table: count for table, count in by_two.items() if table not in ("journal", "outbox")
    }
    assert by_one["outbox"] <= by_two["outbox"]
