"""Facts: written once, by whom they concern, and never after the end."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest

from tests.conformance.store.driving import (
    NOW,
    Run,
    began,
    done,
    ends,
    failed,
    ok,
    signal,
    task,
    waits,
)
from tidewheel.journal import events as ev
from tidewheel.store.append import Beat, Cancelled, Completed, Fact, Fate, Fired, Resolved, Verdict
from tidewheel.store.protocol import Store

LATER = NOW + dt.timedelta(minutes=5)


async def verdict_of(run: Run, fact: Fact) -> Verdict:
    """Tell the store one fact and return what became of it."""
    (verdict,) = (await run.tell(fact)).verdicts
    return verdict


async def test_a_result_is_written_with_the_start_that_was_not(run: Run) -> None:
    """An inline step reports both at once: its owner's completion brings the missing start."""
    await run.move(task(), waits("0"))

    answer = await run.tell(done(value=42))

    assert answer.verdicts == [Verdict.WRITTEN]
    assert (await run.story())[-2:] == ["InvokeStarted", "InvokeCompleted"]
    assert not await run.has_step()


async def test_a_zombies_result_is_refused(run: Run) -> None:
    """After a later attempt was started, an earlier one can report nothing more."""
    await run.move(task(), waits("0"))
    await run.tell(began(attempt=1))
    await run.tell(failed(attempt=1, retry_at=NOW, overdue=True))
    await run.tell(began(attempt=2, owner="worker-2"))
    before = await run.story()

    verdicts = [
        await verdict_of(run, done(attempt=1)),
        await verdict_of(run, failed(attempt=1)),
        await verdict_of(run, Beat(path="0", attempt=1)),
        await verdict_of(run, began(attempt=2)),
    ]

    assert verdicts == [Verdict.LATE] * 4
    assert await run.story() == before
    assert await verdict_of(run, done(attempt=2, owner="worker-2")) is Verdict.WRITTEN


async def test_only_the_owner_reports_an_attempt_that_was_not_started(run: Run) -> None:
    """A step that waits to be started can be completed by the worker it was given to, and nobody else."""
    await run.move(task(), waits("0"), owner="worker-1")

    verdicts = [
        await verdict_of(run, done(owner="worker-2")),
        await verdict_of(run, done(owner=None)),
        await verdict_of(run, began(owner="worker-2")),
        await verdict_of(run, done(attempt=2, owner="worker-1")),
    ]

    assert verdicts == [Verdict.LATE] * 4
    assert await verdict_of(run, done(owner="worker-1")) is Verdict.WRITTEN


async def test_a_step_that_nobody_has_can_be_taken_by_anybody_once(run: Run) -> None:
    """A queued step belongs to whoever starts it first."""
    await run.move(task(dispatch="queued"), waits("0"))

    first = await verdict_of(run, began(owner="worker-2"))
    second = await verdict_of(run, began(owner="worker-3"))

    assert (first, second) == (Verdict.WRITTEN, Verdict.LATE)
    assert (await run.step()).owner == "worker-2"


async def test_a_start_that_is_told_again_is_a_duplicate_to_its_owner_alone(run: Run) -> None:
    """Its owner lost the reply and goes on; anybody else is too late."""
    await run.move(task(dispatch="queued"), waits("0"))
    await run.tell(began(owner="worker-2"))

    verdicts = [await verdict_of(run, began(owner=owner)) for owner in ("worker-2", "worker-3")]

    assert verdicts == [Verdict.DUPLICATE, Verdict.LATE]
    assert (await run.story()).count("InvokeStarted") == 1


async def test_a_signal_that_was_written_is_known_after_the_end(run: Run) -> None:
    """Its sender, who asks again, learns that it was in time; a new one is not."""
    await run.tell(signal("a"))
    await run.see()
    await run.move(ends())

    verdicts = [await verdict_of(run, signal(key)) for key in ("a", "b")]

    assert verdicts == [Verdict.DUPLICATE, Verdict.ENDED]


async def test_the_keeper_reports_what_nobody_reported(run: Run) -> None:
    """An overdue attempt is closed whoever owns it."""
    await run.move(task(dispatch="queued"), waits("0"))

    verdict = await verdict_of(run, done(owner=None, overdue=True))

    assert verdict is Verdict.WRITTEN


async def test_an_attempt_that_failed_is_followed_by_the_next_number(run: Run) -> None:
    """Attempts rise by one, whoever makes them."""
    await run.move(task(), waits("0"))
    await run.tell(began(attempt=1))
    await run.tell(failed(attempt=1, retry_at=NOW, next_owner="worker-1"))

    verdicts = [
        await verdict_of(run, began(attempt=1)),
        await verdict_of(run, began(attempt=3)),
        await verdict_of(run, began(attempt=2)),
    ]

    assert verdicts == [Verdict.LATE, Verdict.LATE, Verdict.WRITTEN]


async def test_a_parked_step_takes_no_result(run: Run) -> None:
    """A step that waits for an operator is nobody's to report, not even the keeper's."""
    await run.move(task(), waits("0"))
    await run.tell(failed(attempt=1, retry_at=None))

    verdicts = [
        await verdict_of(run, done(attempt=2)),
        await verdict_of(run, done(attempt=2, overdue=True)),
        await verdict_of(run, began(attempt=2)),
    ]

    assert verdicts == [Verdict.LATE] * 3
    assert (await run.step()).state == "parked"


@pytest.mark.parametrize(
    ("fact", "repeated"),
    [
        (signal("k1"), Verdict.DUPLICATE),
        (Fired(path="1"), Verdict.DUPLICATE),
        (done(), Verdict.LATE),
        (Cancelled(reason="enough"), Verdict.DUPLICATE),
        (Resolved(name="approval", result=ok(1), key="k2"), Verdict.DUPLICATE),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_a_fact_that_is_told_twice_is_written_once(run: Run, fact: Fact, repeated: Verdict) -> None:
    """Whatever is delivered again changes nothing, one after the other, at once, or in one append."""
    await run.move(
        task("0"),
        ev.TimerScheduled(promise_id="1", fire_at=NOW),
        ev.PromiseCreated(promise_id="2", name="approval"),
        waits("0", "1", "2"),
    )

    both = await run.ask(facts=(fact, fact))
    story = await run.story()
    again = await asyncio.gather(*[verdict_of(run, fact) for _ in range(3)])

    assert both.verdicts == [Verdict.WRITTEN, repeated]
    assert again == [repeated] * 3
    assert await run.story() == story


async def test_signals_with_different_keys_are_different(run: Run) -> None:
    """Each is delivered, with the next number."""
    await run.tell(signal("a", payload=1), signal("b", payload=1))

    events = [entry.event for entry in await run.journal()]
    assert [event.delivery_id for event in events if isinstance(event, ev.SignalDelivered)] == [1, 2]


async def test_a_key_is_remembered_across_segments(run: Run) -> None:
    """A signal that is delivered again after continue-as-new is still the same signal."""
    await run.tell(signal("a"))
    await run.see()
    await run.move(ev.ExecutionContinued(next_position=0), ev.ExecutionStarted())

    assert await verdict_of(run, signal("a")) is Verdict.DUPLICATE


async def test_a_promise_is_resolved_once_by_the_first(run: Run) -> None:
    """A second answer is told that there is one; an unknown name is told so."""
    await run.move(ev.PromiseCreated(promise_id="0", name="approval"), waits("0"))

    verdicts = [
        await verdict_of(run, Resolved(name="refusal", result=ok(), key="a")),
        await verdict_of(run, Resolved(name="approval", result=ok("yes"), key="b")),
        await verdict_of(run, Resolved(name="approval", result=ok("no"), key="c")),
    ]

    assert verdicts == [Verdict.UNKNOWN, Verdict.WRITTEN, Verdict.RESOLVED]


@pytest.mark.parametrize(
    "fact",
    [
        signal(),
        done(),
        began(),
        failed(),
        Fired(path="1"),
        Cancelled(),
        Beat(path="0", attempt=1),
        Resolved(name="approval", result=ok(), key="k"),
    ],
    ids=lambda fact: type(fact).__name__,
)
async def test_nothing_is_written_after_the_end(run: Run, fact: Fact) -> None:
    """A late fact is refused to its sender, and the run stays as it ended."""
    await run.move(
        task("0"),
        ev.TimerScheduled(promise_id="1", fire_at=NOW),
        ev.PromiseCreated(promise_id="2", name="approval"),
        ends("result"),
    )
    before = await run.journal()

    answer = await run.tell(fact)

    assert (answer.verdicts, answer.hints) == ([Verdict.ENDED], [])
    assert await run.journal() == before
    assert (await run.record()).wake_at is None


async def test_a_run_that_is_not_there_is_unknown(store: Store) -> None:
    """Facts for it are refused; moves of it rest on nothing."""
    run = Run(store, "nobody")

    answer = await run.ask(facts=(signal(), done()), moves=run.moves(task()))

    assert answer.verdicts == [Verdict.UNKNOWN] * 2
    assert answer.fate is Fate.STALE
    assert await store.find(run.ref) is None


async def test_a_heartbeat_reaches_the_next_attempt(run: Run) -> None:
    """What an attempt said last is in the step's row; the journal has nothing of it."""
    await run.move(task(), waits("0"))
    await run.tell(began())
    before = await run.story()

    await run.tell(Beat(path="0", attempt=1, details=b'{"page":3}'))
    await run.tell(Beat(path="0", attempt=1))
    await run.tell(failed(attempt=1, retry_at=LATER))

    assert (await run.step()).beat == b'{"page":3}'
    assert await run.story() == [*before, "InvokeRetrying"]


async def test_facts_that_the_code_need_not_see_wake_nobody(run: Run) -> None:
    """A start, a retry and a heartbeat are no reason to activate the run; a result is."""
    await run.move(task(), waits("0"))

    quiet = [
        await run.tell(began()),
        await run.tell(Beat(path="0", attempt=1)),
        await run.tell(failed(attempt=1, retry_at=LATER, next_owner="worker-1")),
    ]
    loud = await run.tell(done(attempt=2))

    assert [answer.hints for answer in quiet] == [[], [], []]
    assert [hint.run for hint in loud.hints] == [run.ref]


async def test_an_error_is_a_result_too(run: Run) -> None:
    """The final error of a step completes it."""
    await run.move(task(), waits("0"))
    error = ev.Result(error=ev.Error(type="CardDeclined", message="no", details={"code": 51}))

    await run.tell(Completed(path="0", attempt=1, result=error, owner="worker-1"))

    last = (await run.journal())[-1].event
    assert isinstance(last, ev.InvokeCompleted)
    assert last.result == error
