"""What is due, when, for whom and how often; and who is believed to be alive."""

from __future__ import annotations

import asyncio
import datetime as dt
from itertools import pairwise
from typing import Any

import pytest

from tests.conformance.store.driving import (
    NOW,
    Clock,
    Run,
    a_worker,
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
from tidewheel.store.append import Beat, Fired, Park, Released, Verdict
from tidewheel.store.inline_steps import INLINE_MAX
from tidewheel.store.page import OWNER_GRACE
from tidewheel.store.protocol import Due, Store


def after(seconds: float) -> dt.datetime:
    """Return a time so long after the clock's first."""
    return NOW + dt.timedelta(seconds=seconds)


def sleep(path: str, seconds: float) -> ev.TimerScheduled:
    """Return a timer."""
    return ev.TimerScheduled(promise_id=path, duration=seconds, fire_at=after(seconds))


async def claim(store: Store, clock: Clock, at: float, limit: int = 100) -> Due:
    """Claim what is due at *at* seconds."""
    clock.now = after(at)
    return await store.claim_due(limit=limit)


async def test_a_lost_hint_is_found_and_repeated_less_and_less_often(
    run: Run, store: Store, clock: Clock
) -> None:
    """After one second, then 2, 4, ... seconds later, at most 60."""
    moments = [NOW]
    for _ in range(9):
        due = await store.claim_due(limit=10)
        assert due.next_at is not None
        moments.append(due.next_at)
        early = await claim(store, clock, (due.next_at - NOW).total_seconds() - 0.001)
        clock.now = due.next_at
        assert early.hints == []

    pauses = [(late - early).total_seconds() for early, late in pairwise(moments)]
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
    assert [hint.run for hint in (await store.claim_due(limit=10)).hints] == [run.ref]


async def test_what_was_seen_is_not_due(run: Run, store: Store, clock: Clock) -> None:
    """A run that waits for the outside world is left alone, and nothing is known to come."""
    await run.move(waits())

    due = await claim(store, clock, 1000)

    assert (due.hints, due.steps, due.timers, due.next_at) == ([], [], [], None)
    assert due.now == after(1000)


async def test_a_fact_makes_a_hint_that_was_put_off_due_again(run: Run, store: Store, clock: Clock) -> None:
    """Whoever brings news does not wait for the pauses that the lost hints have grown."""
    for _ in range(4):
        due = await store.claim_due(limit=1)
        assert due.next_at is not None
        clock.now = due.next_at

    answer = await run.tell(signal())

    assert len(answer.hints) == 1
    record = await run.record()
    assert record.wake_at is not None
    assert record.wake_at - clock.now == dt.timedelta(seconds=1)


async def test_a_queued_step_that_nobody_took_is_due(run: Run, store: Store, clock: Clock) -> None:
    """Its hint may be lost: it is due after a second, then less and less often, until somebody starts it."""
    await run.move(task(dispatch="queued", queue="heavy"), waits("0"))

    early = await claim(store, clock, 0.9)
    first = await claim(store, clock, 1.0)
    again = await claim(store, clock, 2.9)
    second = await claim(store, clock, 3.0)
    await run.tell(began(owner="worker-2"))
    taken = await claim(store, clock, 3 + OWNER_GRACE.total_seconds() - 0.001)

    assert [len(due.steps) for due in (early, first, again, second, taken)] == [0, 1, 0, 1, 0]
    (step,) = first.steps
    assert (step.run, step.run_queue, step.step.path, step.step.queue) == (run.ref, "main", "0", "heavy")
    assert (step.step.state, step.step.hints, step.owner_is_alive) == ("scheduled", 1, False)
    assert second.steps[0].step.hints == 2


async def test_a_deadline_is_met_though_the_pauses_have_grown(run: Run, store: Store, clock: Clock) -> None:
    """A step whose hint is put off is due at its deadline, not after it."""
    limits = ev.InvokeLimits(schedule_to_start=10.0)
    await run.move(task(dispatch="queued", limits=limits), waits("0"))

    counts = [len((await claim(store, clock, at)).steps) for at in (1, 3, 7, 9.9, 10)]

    assert counts == [1, 1, 1, 0, 1]


async def test_an_inline_step_is_its_owners_business(run: Run, store: Store, clock: Clock) -> None:
    """Without deadlines the keeper never looks at it: it looks after the owners of runs."""
    await run.move(task("0"), task("1"), waits("0", "1"))
    await run.tell(began("1"))

    due = await claim(store, clock, 10 * OWNER_GRACE.total_seconds())

    assert (due.steps, due.hints, due.next_at) == ([], [], None)
    assert (await run.record()).owner == "worker-1"


async def test_beyond_the_first_few_the_keeper_looks_whether_the_owner_is_there(
    run: Run, store: Store, clock: Clock
) -> None:
    """A run's row has no room for more, so the others have rows, which come due once in a while."""
    paths = [str(number) for number in range(INLINE_MAX + 2)]
    await run.move(*map(task, paths), waits(*paths))
    await run.tell(began(paths[-1]))
    grace_s = OWNER_GRACE.total_seconds()

    early = await claim(store, clock, grace_s - 0.001)
    first = await claim(store, clock, grace_s)

    assert [step.path for step in (await run.record()).inline] == paths[:INLINE_MAX]
    assert (len(early.steps), len(first.steps)) == (0, 2)
    assert [step.path for step in (await run.see()).steps] == paths


@pytest.mark.parametrize(("seconds", "due_at"), [(5, 5.1), (30, 30.1), (31, 31), (3600, 3600)])
async def test_a_timer_is_due_at_its_time(
    run: Run, store: Store, clock: Clock, seconds: float, due_at: float
) -> None:
    """Whoever set a near one fires it, so the keeper lets it be a little late; a far one is the keeper's."""
    await run.move(sleep("0", seconds), waits("0"))

    early = await claim(store, clock, due_at - 0.001)
    first = await claim(store, clock, due_at)
    soon = await claim(store, clock, due_at + 0.9)
    again = await claim(store, clock, due_at + 1)
    fired = await run.tell(Fired(path="0"))
    later = await claim(store, clock, due_at + 100)

    assert early.next_at == after(due_at)
    assert [len(due.timers) for due in (early, first, soon, again, later)] == [0, 1, 0, 1, 0]
    assert (first.timers[0].run, first.timers[0].path) == (run.ref, "0")
    assert [hint.run for hint in fired.hints] == [run.ref]


@pytest.mark.parametrize(
    ("next_owner", "delay", "due_at"),
    [("worker-1", 10, 10.1), (None, 10, 10.1), ("worker-1", 60, 60), (None, 60, 60)],
)
async def test_a_retry_is_due_at_its_time(
    run: Run, store: Store, clock: Clock, next_owner: str | None, delay: float, due_at: float
) -> None:
    """Whoever commits a near one keeps it in memory, so it gets a little grace; a far one is due on time."""
    await run.move(task(), waits("0"))
    await run.tell(failed(retry_at=after(delay), next_owner=next_owner))

    early = await claim(store, clock, due_at - 0.001)
    first = await claim(store, clock, due_at)

    assert (early.steps, early.next_at) == ([], after(due_at))
    (step,) = first.steps
    assert (step.step.state, step.step.attempt, step.step.owner) == ("retrying", 1, next_owner)


@pytest.mark.parametrize(
    ("limits", "due_at"),
    [
        ({"schedule_to_start": 5.0}, 5.0),
        ({"schedule_to_close": 7.0}, 7.1),
        ({"schedule_to_start": 5.0, "schedule_to_close": 3.0}, 3.1),
    ],
)
async def test_a_step_that_is_not_started_or_completed_in_time_is_due(
    run: Run, store: Store, clock: Clock, limits: dict[str, Any], due_at: float
) -> None:
    """Its deadlines count from its schedule; a worker that executes it notices the last one first."""
    await run.move(task(limits=ev.InvokeLimits(**limits)), waits("0"))

    early = await claim(store, clock, due_at - 0.001)
    first = await claim(store, clock, due_at)

    assert (len(early.steps), len(first.steps)) == (0, 1)


async def test_once_started_only_the_deadline_to_complete_counts(
    run: Run, store: Store, clock: Clock
) -> None:
    """The deadline to start has been met."""
    limits = ev.InvokeLimits(schedule_to_start=5.0, schedule_to_close=50.0)
    await run.move(task(limits=limits), waits("0"))
    await run.tell(began())

    early = await claim(store, clock, 50)
    first = await claim(store, clock, 50.1)

    assert (len(early.steps), len(first.steps)) == (0, 1)
    assert first.steps[0].step.close_by == after(50)


async def test_a_step_without_heartbeats_is_due(run: Run, store: Store, clock: Clock) -> None:
    """Twice the interval after the latest beat: its worker notices first."""
    await run.move(task(limits=ev.InvokeLimits(heartbeat=10.0)), waits("0"))
    await run.tell(began())

    clock.now = after(15)
    await run.tell(Beat(path="0", attempt=1))
    alive = await claim(store, clock, 34.9)
    silent = await claim(store, clock, 35)

    assert (len(alive.steps), len(silent.steps)) == (0, 1)


async def test_parked_and_abandoned_steps_are_not_due(run: Run, store: Store, clock: Clock) -> None:
    """Nobody shall execute them, whatever deadlines they have, and whoever of their owners dies."""
    limits = ev.InvokeLimits(schedule_to_start=5.0, schedule_to_close=7.0, heartbeat=1.0)
    await store.register(a_worker())
    await run.move(
        task("0", limits=limits), task("1", limits=limits), task("2", limits=limits), waits("0", "1", "2")
    )
    await run.tell(failed("0", next_owner="worker-1"), began("1"))
    await run.move(abandoned=("1", "2"))

    await store.give_up(["worker-1"])

    due = await claim(store, clock, 1000)
    assert (due.steps, due.next_at) == ([], None)
    assert [step.state for step in (await run.see()).steps] == ["parked", "started", "scheduled"]


async def test_an_abandoned_step_that_is_wanted_again_is_due_now(run: Run, store: Store) -> None:
    """The code came back to it: it is executed after all."""
    await run.move(task("0"), task("1", dispatch="queued", queue="heavy"), waits("0", "1"))
    await run.move(abandoned=("0", "1"))

    answer = await run.move(wanted=("0", "1"))

    steps = {step.path: step for step in (await run.see()).steps}
    assert [(step.abandoned, step.due_at) for step in steps.values()] == [(False, NOW)] * 2
    assert (steps["0"].owner, steps["1"].owner) == ("worker-1", None)
    assert [(hint.path, hint.queue) for hint in answer.hints] == [("1", "heavy")]
    assert len((await store.claim_due(limit=10)).steps) == 2


async def test_a_step_that_is_wanted_again_by_another_worker_owes_its_owner_a_wake_up(run: Run) -> None:
    """The hint that is passed on to the owner may be lost: it is owed until somebody has seen to it."""
    await run.move(task(), waits("0"))
    await run.move(abandoned=("0",))

    await run.move(wanted=("0",), owner="worker-2")

    assert (await run.record()).wake_at is not None
    assert (await run.step()).owner == "worker-1"


async def test_a_step_that_is_given_up_with_its_schedule_is_nobodys(run: Run) -> None:
    """Nobody begins it, so whoever comes back to it begins its first attempt."""
    await run.move(task(), waits(), abandoned=("0",))

    assert (await run.step()).owner is None


async def test_a_step_that_is_given_back_is_due_now(run: Run, store: Store) -> None:
    """Its owner has not started it and does not mean to: anybody may. Others cannot give it back."""
    await run.move(task("0"), task("1"), waits("0", "1"))
    await run.tell(began("1"))

    answer = await run.tell(
        Released(path="0", owner="worker-2"),
        Released(path="0", owner="worker-1"),
        Released(path="1", owner="worker-1"),
    )

    assert answer.verdicts == [Verdict.LATE, Verdict.WRITTEN, Verdict.LATE]
    (due,) = (await store.claim_due(limit=10)).steps
    assert (due.step.path, due.step.owner) == ("0", None)


async def test_a_step_that_nobody_shall_execute_is_given_back_without_being_due(
    run: Run, store: Store, clock: Clock
) -> None:
    """Parked stays parked, abandoned stays abandoned."""
    await run.move(task("0"), task("1"), waits("0", "1"))
    await run.tell(failed("0", next_owner="worker-1"))
    await run.move(abandoned=("1",))

    answer = await run.tell(Released(path="0", owner="worker-1"), Released(path="1", owner="worker-1"))

    assert answer.verdicts == [Verdict.WRITTEN, Verdict.WRITTEN]
    assert (await claim(store, clock, 1000)).steps == []


async def test_a_parked_step_that_is_wanted_again_still_waits_for_an_operator(
    run: Run, store: Store, clock: Clock
) -> None:
    """Wanting it does not make an attempt out of nothing."""
    await run.move(task("0", dispatch="queued"), waits("0"))
    await run.tell(began(), failed())
    await run.move(abandoned=("0",))

    answer = await run.move(wanted=("0",))

    assert answer.hints == []
    assert (await claim(store, clock, 1000)).steps == []


async def test_the_steps_of_a_dead_worker_are_due_now(run: Run, store: Store, clock: Clock) -> None:
    """Giving up a worker is what lets others take over; the steps of other workers stay theirs."""
    await store.register(a_worker("worker-1"))
    await store.register(a_worker("worker-2"))
    timed = ev.InvokeLimits(timeout=5.0, heartbeat=1.0)
    await run.move(task("0", limits=timed), task("1", dispatch="queued"), waits("0", "1"))
    await run.tell(began("0"), began("1", owner="worker-2"))

    await store.give_up(["worker-1", "worker-9"])

    due = await store.claim_due(limit=10)
    assert [(step.step.path, step.owner_is_alive) for step in due.steps] == [("0", False)]
    assert due.hints == []
    assert [worker.worker_id for worker in await store.workers()] == ["worker-2"]


async def test_the_runs_of_a_dead_worker_are_due_now(run: Run, store: Store) -> None:
    """Whoever is woken finds their steps without anybody to execute them; runs of others are left alone."""
    await store.register(a_worker("worker-2"))
    other, ended = Run(store, "other"), Run(store, "ended")
    await other.start()
    await ended.start()
    await run.move(task("0"), waits("0"))
    await other.move(task("0"), waits("0"), owner="worker-2")
    await ended.move(task("0"), waits("0"))
    await ended.move(resumes("0"), ends(), facts=[done("0")])

    await store.give_up(["worker-1"])

    due = await store.claim_due(limit=10)
    assert [hint.run for hint in due.hints] == [run.ref]
    loaded = await run.see()
    assert [(step.path, step.owner) for step in loaded.steps] == [("0", "worker-1")]
    assert loaded.alive == frozenset()


async def test_a_parked_run_is_not_woken_for_its_dead_worker(run: Run, store: Store) -> None:
    """It waits for somebody to unpark it, and is looked at then."""
    await run.move(task("0"), waits("0"))
    await run.mark(Park(kind="quarantine", reason="it kills workers"))

    await store.give_up(["worker-1"])

    assert (await store.claim_due(limit=10)).hints == []


async def test_owners_that_nobody_knows_are_found(store: Store) -> None:
    """One that was given up may write all the same; one that is registered is not among them."""
    for number, owner in enumerate(("worker-1", "worker-2", "worker-1", "worker-3")):
        run = Run(store, f"r{number}")
        await run.start()
        await run.move(task("0"), waits("0"), owner=owner)
    await store.register(a_worker("worker-2"))

    lost = await store.lost_owners()
    await store.register(a_worker("worker-1"))

    assert lost == ["worker-1", "worker-3"]
    assert await store.lost_owners() == ["worker-3"]


async def test_owners_whose_runs_are_seen_to_are_not_looked_for(store: Store) -> None:
    """Somebody is about to wake them, or they are parked: giving up their owner would change nothing."""
    runs = [Run(store, f"r{number}") for number in range(2)]
    for run in runs:
        await run.start()
        await run.move(task("0"), waits("0"))
    await runs[0].mark(Park(kind="quarantine", reason="it kills workers"))

    before = await store.lost_owners()
    await store.give_up(["worker-1"])

    assert before == ["worker-1"]
    assert await store.lost_owners() == []


async def test_due_steps_say_whether_their_owner_lives(run: Run, store: Store, clock: Clock) -> None:
    """The keeper fails what a live worker is late with, and takes over what a dead one left."""
    await store.register(a_worker("worker-1", alive_for_s=10))
    await run.move(task(limits=ev.InvokeLimits(schedule_to_close=5.0)), waits("0"))

    alive = await claim(store, clock, 6)
    dead = await claim(store, clock, 11)

    assert [due.steps[0].owner_is_alive for due in (alive, dead)] == [True, False]


async def test_no_more_is_claimed_than_asked_for(store: Store, clock: Clock) -> None:
    """The rest stays due for the next call, of each kind."""
    for number in range(5):
        run = Run(store, f"r{number}")
        await run.start()
        await run.move(sleep("0", 1), task("1", dispatch="queued"), waits("0", "1"))
        await run.tell(signal())

    counts = []
    for _ in range(3):
        due = await claim(store, clock, 10, limit=2)
        counts.append((len(due.hints), len(due.timers), len(due.steps)))

    assert counts == [(2, 2, 2), (2, 2, 2), (1, 1, 1)]


async def test_what_is_claimed_is_claimed_by_one(store: Store, clock: Clock) -> None:
    """Two keepers never get the same thing."""
    for number in range(12):
        await Run(store, f"r{number}").start()
    clock.advance(2)

    claims = await asyncio.gather(*[store.claim_due(limit=5) for _ in range(4)])

    claimed = [hint.run.run_id for due in claims for hint in due.hints]
    assert sorted(claimed) == sorted({f"r{number}" for number in range(12)})


async def test_a_run_that_ended_is_never_due(run: Run, store: Store, clock: Clock) -> None:
    """Its timers and steps went with it."""
    await run.move(sleep("0", 1), task("1", dispatch="queued"), waits("0", "1"))
    await run.tell(signal())
    await run.see()
    await run.move(resumes(), ends())

    due = await claim(store, clock, 1000)

    assert (due.hints, due.timers, due.steps, due.next_at) == ([], [], [], None)


async def test_a_completed_step_is_not_due(run: Run, store: Store, clock: Clock) -> None:
    """Whatever deadlines it had."""
    await run.move(task(limits=ev.InvokeLimits(schedule_to_close=5.0)), waits("0"))
    await run.move(resumes("0"), waits(), facts=[done()])

    assert (await claim(store, clock, 1000)).steps == []


async def test_a_worker_is_registered_renewed_and_given_up(store: Store, clock: Clock) -> None:
    """A worker that was given up, or never was there, is told so when it renews."""
    await store.register(a_worker())
    clock.advance(20)

    renewed = await store.renew("worker-1", 30)
    unknown = await store.renew("worker-2", 30)
    (worker,) = await store.workers()
    await store.give_up(["worker-1"])
    given_up = await store.renew("worker-1", 30)

    assert (renewed, unknown, given_up) == (True, False, False)
    assert worker.alive_until == after(50)
    assert (worker.queues, worker.workflows) == (a_worker().queues, a_worker().workflows)
    assert await store.workers() == []


async def test_a_worker_that_registers_again_replaces_what_it_had(store: Store) -> None:
    """It has other workflows now."""
    await store.register(a_worker())
    await store.register(a_worker(alive_for_s=99))

    assert await store.workers() == [a_worker(alive_for_s=99)]


async def test_loading_a_run_tells_which_owners_live(run: Run, store: Store, clock: Clock) -> None:
    """An activation leaves the steps of live owners alone."""
    await store.register(a_worker("worker-1", alive_for_s=10))
    await store.register(a_worker("worker-2", alive_for_s=10))
    await run.move(task("0"), task("1", dispatch="queued"), waits("0", "1"), owner="worker-1")
    await run.tell(began("1", owner="worker-3"))

    alive = (await run.see()).alive
    clock.advance(10)
    later = (await run.see()).alive

    assert (alive, later) == (frozenset({"worker-1"}), frozenset())
