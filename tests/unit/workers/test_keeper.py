"""The keeper: whatever was lost, it comes right in the end."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest
from msgspec.structs import replace

from tests.unit.workers.house import House
from tidewheel import App, Context
from tidewheel.broker.message import REASON, Message, Publication
from tidewheel.broker.topology import dead_letter_queue, work_queue
from tidewheel.broker.work_items import RunHint, message_of
from tidewheel.sdk.hinting import publications
from tidewheel.store.append import Append, Unpark
from tidewheel.store.records import RunRef, WorkerRecord
from tidewheel.workers.config import KeeperConfig

app = App("keeping")


@app.task
async def double(number: int) -> int:
    """A step."""
    return 2 * number


@app.task(inline=False)
async def triple(number: int) -> int:
    """A step over a queue."""
    return 3 * number


@app.workflow
async def both(ctx: Context, number: int) -> int:
    """Both of them, and a child."""
    return await ctx.invoke(double, number) + await ctx.invoke(triple, number) + await ctx.invoke(naps, 2.0)


@app.workflow
async def naps(ctx: Context, seconds: float) -> int:
    """Sleeps."""
    await ctx.sleep(seconds)
    return 1


async def test_lost_hints_are_published_again(house: House) -> None:
    """With a broker that loses everything while the run is started, it ends all the same."""
    await house.worker(app)
    await house.keeper()
    client = await house.client()
    house.broker.is_down = True

    handle = await client.start(both, 1)
    await asyncio.sleep(3)
    house.broker.is_down = False

    assert await handle.result() == 6


@pytest.mark.parametrize("seconds", [0.25, 29.0, 31.0, 7200.0])
async def test_timers_fire_to_the_millisecond(house: House, seconds: float) -> None:
    """Near ones by whoever set them, distant ones by the keeper."""
    await house.worker(app)
    await house.keeper()
    handle = await (await house.client()).start(naps, seconds)
    began = house.run(handle.run_id).created_at

    await handle.result()

    ended = house.run(handle.run_id).ended_at
    assert ended is not None
    assert (ended - began).total_seconds() == pytest.approx(seconds, abs=0.02)


async def test_a_timer_whose_worker_has_gone_is_fired_by_the_keeper(house: House) -> None:
    """It was armed in a memory that is no more."""
    worker = await house.worker(app)
    handle = await (await house.client()).start(naps, 5.0)
    await house.until(lambda: house.kinds(handle.run_id)["ExecutionAwaiting"] == 1)
    await worker.stop()
    await house.keeper()
    await house.worker(app)

    result = await handle.result()

    assert result == 1


async def test_steps_of_a_dead_worker_are_taken_over(house: House) -> None:
    """Its lease ends, and the attempt it had counts."""
    ghost = "ghost-worker"
    client = await house.client()
    handle = await client.start(both, 1)
    await house.store.register(_dead(ghost, await house.store.now()))
    await _schedule_for(house, handle.run_id, ghost)
    await house.keeper()
    await house.worker(app)

    result = await handle.result()

    assert result == 6
    assert house.kinds(handle.run_id)["InvokeRetrying"] == 1


async def test_a_step_committed_after_its_worker_was_given_up_is_taken_over_soon(house: House) -> None:
    """A killed process leaves a statement with the database, which carries it out all the same."""
    ghost = "ghost-worker"
    await house.keeper()
    client = await house.client()
    handle = await client.start(both, 1)
    now = await house.store.now()
    await house.store.register(replace(_dead(ghost, now), alive_until=now + dt.timedelta(minutes=1)))
    await asyncio.sleep(2)  # the keeper has seen it
    await house.store.give_up([ghost])
    await _schedule_for(house, handle.run_id, ghost)
    began = await house.store.now()

    await house.until(lambda: house.run(handle.run_id).hints > 0)

    assert await house.store.now() - began < dt.timedelta(seconds=5)


async def test_a_run_that_workers_die_with_is_tried_alone_then_quarantined(house: House) -> None:
    """A dead letter has it tried alone; if it dies alone too, that is enough. Unparked, it goes on."""
    await house.keeper(KeeperConfig(strikes=2))
    client = await house.client()
    handle = await client.start(both, 1)
    ref = RunRef("default", handle.run_id)
    address = dead_letter_queue(work_queue("default", "default"))
    await asyncio.sleep(2)

    await house.broker.publish([Publication(message=_died(ref, alone=False), routing_key=address)])
    await house.until(lambda: house.run(handle.run_id).strikes == 1)
    assert house.run(handle.run_id).parked is None
    await house.broker.publish([Publication(message=_died(ref, alone=True), routing_key=address)])
    await house.until(lambda: house.run(handle.run_id).parked == "quarantine")

    assert "delivery limit" in (house.run(handle.run_id).parked_reason or "")
    await house.worker(app)
    await asyncio.sleep(60)
    assert house.kinds(handle.run_id)["InvokeScheduled"] == 0
    (answer,) = await house.store.append([Append(run=ref, mark=Unpark())])
    await house.broker.publish(publications([answer]))
    assert await handle.result() == 6


async def test_a_run_waits_for_a_worker_that_has_its_workflow(house: House) -> None:
    """Parked, not failed; the next worker that has it takes it up."""
    other = App("other")
    await house.keeper()
    await house.worker(other)
    handle = await (await house.client()).start(naps, 1.0)
    await house.until(lambda: house.run(handle.run_id).parked == "unknown_workflow")

    assert "has no workflow 'naps'" in (house.run(handle.run_id).parked_reason or "")
    await house.worker(app)
    assert await handle.result() == 1


async def test_a_labelled_run_waits_for_a_worker_of_its_version(house: House) -> None:
    """The code it began with, not whatever is there."""
    old, new = App("old"), App("new")

    async def greet(ctx: Context) -> str:
        return "old"

    async def greet_anew(ctx: Context) -> str:
        return "new"

    old.workflow(name="greet", version="1")(greet)
    new.workflow(name="greet", version="2")(greet_anew)
    await house.keeper()
    await house.worker(new)
    handle = await (await house.client()).start(greet)
    await house.until(lambda: house.run(handle.run_id).parked == "needs_version")
    await house.worker(old)

    result = await handle.result()

    assert result == "old"


async def test_runs_that_ended_long_ago_are_deleted(house: House) -> None:
    """After their time of retention, and not before."""
    await house.worker(app)
    await house.keeper(KeeperConfig(retention_days=0.01))
    handle = await (await house.client()).start(naps, 1.0)
    await handle.result()
    ref = RunRef("default", handle.run_id)

    await asyncio.sleep(800)
    assert house.store.rows.run(ref) is not None
    await asyncio.sleep(200)

    assert house.store.rows.run(ref) is None


def _died(run: RunRef, *, alone: bool) -> Message:
    """A message that workers died with."""
    letter = message_of(RunHint(namespace=run.namespace, run_id=run.run_id, alone=alone))
    return Message(body=letter.body, message_id=letter.message_id, headers={REASON: "delivery limit"})


def _dead(worker_id: str, now: dt.datetime) -> WorkerRecord:
    return WorkerRecord(
        worker_id=worker_id,
        host="elsewhere",
        pid=1,
        began="",
        queues=("default",),
        workflows=(),
        started_at=now,
        alive_until=now + dt.timedelta(seconds=5),
    )


async def _schedule_for(house: House, run_id: str, worker_id: str) -> None:
    """Let a worker schedule a run's first step for itself, and never be heard of again."""
    from tests.unit.sdk.twins import move
    from tidewheel.journal import events as ev

    await move(
        house.store,
        run_id,
        ev.InvokeScheduled(promise_id="0", function_name="double", input=[1], n=0),
        ev.ExecutionAwaiting(waiting_on=["0"], kind="single"),
        owner=worker_id,
    )
