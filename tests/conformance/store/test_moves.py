"""Moves: fenced by a token, resting on facts, and never forgetful of what landed meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from tests.conformance.store.driving import (
    NOW,
    Clock,
    Run,
    began,
    done,
    ends,
    failed,
    resumes,
    signal,
    task,
    waits,
)
from tidewheel.journal import events as ev
from tidewheel.store.append import Append, Await, Cancelled, Fate, Park, Verdict
from tidewheel.store.protocol import Store

CONTINUES = (ev.ExecutionContinued(input=[2], next_position=5), ev.ExecutionStarted(input=[2]))


async def test_moves_are_written_and_replace_the_fence(run: Run) -> None:
    """What the code asked for is in the journal, and the next activation has to name the new token."""
    answer = await run.move(task(), waits("0"))

    assert (answer.fate, answer.last_seq, answer.landed) == (Fate.COMMITTED, 2, [])
    assert await run.story() == ["ExecutionStarted", "InvokeScheduled", "ExecutionAwaiting"]
    assert (await run.record()).token == run.token != b""


async def test_of_two_activations_one_wins(run: Run) -> None:
    """Both computed from the same fence: the second is stale, and nothing of it is written."""
    mine, other = run.moves(task("0"), waits("0")), run.moves(task("0"), waits("0"))

    answers = await asyncio.gather(run.ask(moves=mine), run.ask(moves=other))

    assert sorted(str(answer.fate) for answer in answers) == ["Fate.COMMITTED", "Fate.STALE"]
    assert (await run.story()).count("InvokeScheduled") == 1


async def test_facts_are_kept_when_the_fence_has_gone(run: Run) -> None:
    """A finished result is never thrown away: only the moves are dropped, and the run is woken."""
    await run.move(task("0"), task("1"), waits("0", "1"))
    slow = Run(run.store, "r")
    slow.token, slow.seen = run.token, run.seen
    await run.move(resumes("1"), waits("0"), facts=[done("1")])

    answer = await slow.move(resumes("0"), ends(), facts=[done("0", value=42)])

    assert (answer.verdicts, answer.fate) == ([Verdict.WRITTEN], Fate.STALE)
    assert [hint.run for hint in answer.hints] == [run.ref]
    last = (await run.journal())[-1].event
    assert isinstance(last, ev.InvokeCompleted)
    assert last.result.ok == 42
    assert (await run.record()).wake_at is not None


async def test_moves_that_rest_on_a_refused_fact_are_dropped(run: Run) -> None:
    """A zombie whose result is refused cannot go on from that result either."""
    await run.move(task(), waits("0"))
    await run.tell(began(attempt=1))
    await run.tell(failed(attempt=1, retry_at=NOW, overdue=True))
    await run.tell(began(attempt=2, owner="worker-2"))
    await run.see()

    answer = await run.move(resumes("0"), ends("wrong"), facts=[done(attempt=1)])

    assert (answer.verdicts, answer.fate) == ([Verdict.LATE], Fate.STALE)
    assert (await run.record()).status == "RUNNING"


async def test_what_landed_meanwhile_is_told_and_wakes_the_run(run: Run, clock: Clock) -> None:
    """A signal between load and append is not forgotten: the activation gets it, and the run stays due."""
    await run.see()
    await run.tell(signal("a", payload="hello"))

    answer = await run.move(task(), waits("0"))

    assert answer.fate is Fate.COMMITTED
    (landed,) = answer.landed
    assert isinstance(landed.event, ev.SignalDelivered)
    assert (landed.run_seq, landed.event.payload) == (1, "hello")
    assert (await run.record()).wake_at is not None
    clock.advance(2)
    due = await run.store.claim_due(limit=10)
    assert [hint.run for hint in due.hints] == [run.ref]


async def test_own_facts_have_not_landed(run: Run) -> None:
    """What an append brings along was shown to its code."""
    await run.move(task(), waits("0"))

    answer = await run.move(resumes("0"), task("1"), waits("1"), facts=[done("0")])

    assert (answer.landed, answer.hints) == ([], [])
    assert (await run.record()).wake_at is None


async def test_what_the_code_need_not_see_lands_quietly(run: Run) -> None:
    """A step that was started meanwhile is told, but is no reason to wake the run."""
    await run.move(task("0"), task("1"), waits("0", "1"))
    await run.tell(began("1"))

    answer = await run.move(resumes("0"), waits("1"), facts=[done("0")])

    assert [type(entry.event).__name__ for entry in answer.landed] == ["InvokeStarted"]
    assert (await run.record()).wake_at is None


async def test_the_wake_up_is_cleared_when_all_was_seen(run: Run) -> None:
    """An activation that asks for nothing says by its append that it has seen everything up to there."""
    await run.move(waits())
    await run.tell(signal("a"))
    first = await run.see()
    await run.tell(signal("b"))

    partly = await run.ask(moves=run.moves(base_seq=first.run.last_seq))
    still_owed = (await run.record()).wake_at
    await run.see()
    wholly = await run.move()

    assert (partly.fate, wholly.fate) == (Fate.COMMITTED, Fate.COMMITTED)
    assert [entry.run_seq for entry in partly.landed] == [3]
    assert still_owed is not None
    assert (await run.record()).wake_at is None


async def test_moves_without_events_leave_the_fence(run: Run) -> None:
    """Having looked is nothing that another activation could collide with."""
    before = (await run.record()).token

    await run.move()

    assert (await run.record()).token == before


async def test_one_hint_is_enough_for_many_facts(run: Run, clock: Clock) -> None:
    """While a hint is under way no other is published; after it was due, the next fact brings one."""
    await run.move(waits())

    first = await run.tell(signal("a"))
    second = await run.tell(signal("b"))
    clock.advance(1.5)
    third = await run.tell(signal("c"))

    assert [len(answer.hints) for answer in (first, second, third)] == [1, 0, 1]


async def test_a_cut_commit_is_resolved_by_repeating(run: Run) -> None:
    """The same append again finds its own token: nothing is written twice."""
    await run.move(task(), waits("0"))
    moves = run.moves(resumes("0"), task("1"), waits("1"))
    await run.ask(facts=(done("0"),), moves=moves)
    before = await run.journal()

    again = await run.ask(facts=(done("0"),), moves=moves)

    assert (again.fate, again.verdicts) == (Fate.REPEATED, [Verdict.LATE])
    assert again.last_seq == len(before) - 1
    assert await run.journal() == before


async def test_a_cut_end_is_resolved_by_repeating(run: Run) -> None:
    """An append that ended the run tells so when it is repeated; anybody else's moves come too late."""
    moves = run.moves(ends(1))
    await run.ask(moves=moves)

    again = await run.ask(moves=moves)
    other = await run.ask(moves=run.moves(ends(2)))

    assert (again.fate, other.fate) == (Fate.REPEATED, Fate.ENDED)
    assert await run.story() == ["ExecutionStarted", "ExecutionCompleted"]


async def test_a_repeated_append_that_was_not_committed_is_committed(run: Run) -> None:
    """Where the first try never arrived, the second is the first."""
    append = Append(run=run.ref, facts=(signal("a"),), moves=run.moves(task(), waits("0")))

    (first,) = await run.store.append([append])
    (second,) = await run.store.append([append])

    assert (first.fate, first.verdicts) == (Fate.COMMITTED, [Verdict.WRITTEN])
    assert (second.fate, second.verdicts) == (Fate.REPEATED, [Verdict.DUPLICATE])


async def test_a_segment_is_not_closed_over_what_landed(run: Run) -> None:
    """Continue-as-new that has not seen everything is stale, or a signal would be left behind."""
    await run.tell(signal("a"))

    refused = await run.move(*CONTINUES)
    await run.see()
    accepted = await run.move(*CONTINUES)

    assert (refused.fate, accepted.fate) == (Fate.STALE, Fate.COMMITTED)
    assert (await run.story()).count("ExecutionContinued") == 1


async def test_a_new_segment_begins_at_its_start_and_has_nothing_open(run: Run) -> None:
    """Steps, timers and promises of the old segment are forgotten; the new one has to be run."""
    await run.move(
        task("0"),
        ev.TimerScheduled(promise_id="1", fire_at=NOW),
        ev.PromiseCreated(promise_id="2", name="approval"),
    )

    answer = await run.move(*CONTINUES)

    loaded = await run.see()
    assert [type(entry.event).__name__ for entry in loaded.entries] == ["ExecutionStarted"]
    assert (loaded.run.segment_seq, loaded.run.first_position) == (5, 5)
    assert (loaded.steps, loaded.timers) == ([], [])
    assert [hint.run for hint in answer.hints] == [run.ref]
    assert (await run.tell(done("0"))).verdicts == [Verdict.LATE]


async def test_the_end_beats_what_was_not_seen(run: Run) -> None:
    """A run may end although a signal landed meanwhile; nobody is woken for it any more."""
    await run.see()
    await run.tell(signal("a"))

    answer = await run.move(ends("done"))

    assert (answer.fate, answer.hints) == (Fate.COMMITTED, [])
    record = await run.record()
    assert (record.status, record.wake_at, record.ended_at) == ("COMPLETED", None, answer.now)


async def test_a_cancel_is_landed_like_any_fact(run: Run) -> None:
    """A cancel that the code has not seen keeps the run due."""
    await run.move(task(), waits("0"))
    await run.tell(Cancelled(reason="enough"))

    answer = await run.move()

    assert [type(entry.event).__name__ for entry in answer.landed] == ["CancelRequested"]
    record = await run.record()
    assert (record.wake_at is not None, record.cancelling) == (True, True)


@pytest.mark.parametrize("parked", [False, True])
async def test_a_run_cancelled_before_its_first_activation_ends_at_once(run: Run, parked: bool) -> None:
    """No code has run that could be asked, and none has to be there: also where nobody has the workflow."""
    await run.mark(Await(reply_to="client"))
    if parked:
        await run.mark(Park(kind="unknown_workflow", reason="nobody has it"))

    answer = await run.tell(Cancelled(reason="a typo"))

    assert [ended.reply_to for ended in answer.ended] == [("client",)]
    record = await run.record()
    assert (record.status, record.parked, record.wake_at) == ("CANCELLED", None, None)
    assert [type(entry.event).__name__ for entry in await run.journal()] == [
        "ExecutionStarted",
        "CancelRequested",
        "ExecutionCancelled",
    ]


async def test_inline_steps_belong_to_whoever_asked_for_them(run: Run) -> None:
    """The same commit records the worker as their owner, and the delivery on which it took them."""
    await run.move(task("0"), task("1", dispatch="queued", queue="heavy"), owner="w9", message_id="m1")

    loaded = await run.see()

    assert [(step.path, step.owner, step.queue) for step in loaded.steps] == [
        ("0", "w9", "main"),
        ("1", None, "heavy"),
    ]
    assert loaded.run.owner_message == "m1"


async def test_queued_steps_are_hinted_to_their_queue(run: Run) -> None:
    """Their workers are told after the commit, with the attempt they are to make."""
    answer = await run.move(task("0", dispatch="queued", queue="heavy"), task("1"), waits("0", "1"))

    assert [(hint.queue, hint.path, hint.attempt) for hint in answer.hints] == [("heavy", "0", 1)]


async def test_a_cancelled_timer_is_forgotten(run: Run, store: Store) -> None:
    """The code no longer waits for it: it neither fires nor is due."""
    await run.move(ev.TimerScheduled(promise_id="0", fire_at=NOW), ev.TimerCancelled(promise_id="0"))

    assert (await run.see()).timers == []
