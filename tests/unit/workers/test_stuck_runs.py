"""Runs that nobody came back to: whatever went wrong once, each of them ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

import pytest

from tests.unit.sdk.twins import move
from tests.unit.workers.house import House
from tidewheel import App, Context, StepFailed
from tidewheel.broker.errors import BrokerUnavailable
from tidewheel.broker.message import Publication
from tidewheel.broker.topology import sticky_queue
from tidewheel.broker.work_items import RunHint, to_queue
from tidewheel.journal import events as ev
from tidewheel.store.append import Append, Appended, Park
from tidewheel.store.errors import Unreadable
from tidewheel.store.protocol import LoadedStep
from tidewheel.store.records import RunRef
from tidewheel.workers.config import WorkerConfig
from tidewheel.workers.parked import ROUND_MAX

HOUR = 3600.0


def _now() -> float:
    return asyncio.get_running_loop().time()


async def test_two_versions_on_one_queue_go_on_for_as_long_as_signals_come(house: House) -> None:
    """Each time a worker without the version parks the run, one that has it is asked again."""
    client = await house.client()
    old, old_workflow = _counting("v1", signals=10)
    new, _ = _counting("v2", signals=10)
    await house.worker(old)
    await house.worker(new)
    await house.keeper()
    handle = await client.start(old_workflow)

    for number in range(10):
        await asyncio.sleep(5)
        await handle.signal("go", number)

    assert await handle.result(timeout=HOUR) == "v1"


async def test_two_owners_of_a_run_do_not_send_its_hints_to_and_fro(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that executes a part of a run takes its hints, though another executes the rest."""
    app = App("two-owners")
    begun: list[int] = []

    @app.task
    async def slow(number: int) -> int:
        begun.append(number)
        await asyncio.sleep(30)
        return number

    @app.workflow
    async def both(ctx: Context) -> int:
        async def second() -> int:
            await ctx.signal("go")
            return await ctx.invoke(slow, 2)

        return sum(await asyncio.gather(ctx.invoke(slow, 1), second()))

    client = await house.client()
    first = await house.worker(app)
    first._chores[0].cancel()  # what comes over the shared queue is the second's
    await house.keeper()
    handle = await client.start(both)
    hint = RunHint(namespace="default", run_id=handle.run_id)
    await house.broker.publish([to_queue(hint, sticky_queue(first.worker_id))])
    await house.until(lambda: begun == [1])
    await house.worker(app)
    publish, refuses, sent = house.broker.publish, True, 0

    async def counted(publications: Sequence[Publication]) -> None:
        nonlocal sent
        if refuses and any("sticky" in one.routing_key for one in publications):
            raise BrokerUnavailable("for a moment")
        sent += len(publications)
        if sent < 200:  # more are lost, or a failure would never end
            await publish(publications)

    monkeypatch.setattr(house.broker, "publish", counted)
    await handle.signal("go")
    await house.until(lambda: begun == [1, 2])
    refuses = False
    await handle.signal("other")

    assert await handle.result(timeout=60) == 3
    assert begun == [1, 2]
    assert sent < 20


async def test_a_step_whose_task_is_gone_fails_when_it_is_taken_over(house: House) -> None:
    """A deploy without the task finds its step open: the code is told, as if it had asked only now."""
    tasks, flows = App("tasks"), App("flows")

    @tasks.task
    async def gone() -> int:
        await asyncio.sleep(HOUR)
        return 1

    @flows.workflow
    async def asks(ctx: Context) -> str:
        try:
            return f"ok {await ctx.invoke(gone)}"
        except StepFailed as problem:
            return f"failed: {problem}"

    old = App("old")
    old.include(tasks)
    old.include(flows)
    worker = await house.worker(old)
    await house.keeper()
    handle = await (await house.client()).start(asks)
    await asyncio.sleep(5)
    await worker.stop(grace_s=0)

    await house.worker(flows)

    assert "has no task 'gone'" in await handle.result(timeout=HOUR)


async def test_steps_dropped_by_a_turn_that_failed_are_begun_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its delivery was acknowledged long ago, and its owner is alive: the worker has to hint at it itself."""
    app = App("dropped")

    @app.task
    async def lasts(seconds: float) -> int:
        await asyncio.sleep(seconds)
        return 1

    @app.workflow
    async def both(ctx: Context) -> int:
        return sum(await asyncio.gather(ctx.invoke(lasts, 600.0), ctx.invoke(lasts, 100.0)))

    worker = await house.worker(app)
    await house.keeper()
    handle = await (await house.client()).start(both)
    await asyncio.sleep(90)
    append, bugs = house.store.append, 1

    async def failing(batch: Sequence[Append]) -> list[Appended]:
        nonlocal bugs
        if bugs and any(one.moves is not None for one in batch):
            bugs -= 1
            raise ValueError("a bug, once")
        return await append(batch)

    monkeypatch.setattr(house.store, "append", failing)

    assert await handle.result(timeout=HOUR) == 2
    assert bugs == 0
    assert worker.config.hold_s < 90  # or it was the delivery that came back


async def test_hints_of_one_busy_run_leave_room_for_other_runs(house: House) -> None:
    """However many signals a run gets while a step of it is executed, one delivery is kept for it."""
    app = App("busy")

    @app.task
    async def slow() -> int:
        await asyncio.sleep(100)
        return 1

    @app.workflow
    async def listens(ctx: Context) -> int:
        step = ctx.start(slow)
        for _ in range(20):
            await ctx.signal("go")
        return await step

    @app.workflow
    async def quick(ctx: Context) -> int:
        return 2

    client = await house.client()
    await house.worker(app, WorkerConfig(prefetch=4))
    await house.keeper()
    busy = await client.start(listens)
    for number in range(10):
        await asyncio.sleep(0.05)
        await busy.signal("go", number)
    asked = _now()
    other = await client.start(quick)

    assert await other.result() == 2
    assert _now() - asked < 1


async def test_an_operation_that_was_abandoned_is_executed_when_it_is_asked_for_again(house: House) -> None:
    """The worker still has the run in memory, and learns there what the code would execute now."""
    app = App("wanted")
    executed: list[str] = []

    async def operation() -> str:
        executed.append("operation")
        return "done"

    @app.workflow
    async def changes_its_mind(ctx: Context) -> str:
        ctx.run("key", operation).cancel()
        await ctx.signal("go")
        return await ctx.run("key", operation)

    await house.worker(app)
    await house.keeper()
    handle = await (await house.client()).start(changes_its_mind)
    await house.until(lambda: house.kinds(handle.run_id)["ExecutionAwaiting"] == 1)
    assert executed == []
    await handle.signal("go")

    assert await handle.result(timeout=HOUR) == "done"
    assert executed == ["operation"]


async def test_a_child_that_no_app_includes_fails_though_its_worker_died(house: House) -> None:
    """Its schedule was committed and its failure was not: the keeper hints at it, the next worker says so."""
    app, library = App("parents"), App("library")

    @library.workflow
    async def child(ctx: Context) -> int:
        return 1

    @app.workflow
    async def asks(ctx: Context) -> str:
        try:
            return f"ok {await ctx.invoke(child)}"
        except StepFailed as problem:
            return f"failed: {problem}"

    house.broker.is_down = True  # nobody is told of the start either
    handle = await (await house.client()).start(asks)
    await move(
        house.store,
        handle.run_id,
        ev.InvokeScheduled(promise_id="0", kind="workflow", function_name="child", input=[], n=0),
        ev.ExecutionAwaiting(waiting_on=["0"], kind="single"),
        owner="ghost",
    )
    house.broker.is_down = False
    await house.worker(app)
    await house.keeper()

    assert "has no workflow 'child'" in await handle.result(timeout=HOUR)


async def test_a_step_that_cannot_be_read_does_not_hold_up_the_others(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the keeper claims along with it is seen to in the same round, on time."""
    app = App("poison")

    @app.task(inline=False, queue="nowhere", schedule_to_start=5)
    async def waits() -> int:
        return 1

    @app.workflow
    async def asks(ctx: Context) -> str:
        try:
            return f"ok {await ctx.invoke(waits)}"
        except StepFailed:
            return "failed"

    await house.worker(app)
    await house.keeper()
    load_step = house.store.load_step

    async def damaged(run: RunRef, path: str) -> LoadedStep | None:
        if run.run_id == "bad":
            raise Unreadable("bad", 1, "checksum")
        return await load_step(run, path)

    monkeypatch.setattr(house.store, "load_step", damaged)
    client = await house.client()
    await client.start(asks, run_id="bad")
    handles = [await client.start(asks) for _ in range(3)]

    results = [await handle.result(timeout=HOUR) for handle in handles]

    assert results == ["failed"] * 3
    assert _now() == pytest.approx(5, abs=0.5)


async def test_a_parked_run_is_found_behind_any_number_of_hopeless_ones(house: House) -> None:
    """The keeper looks at all parked runs, a page at a time, not only at the newest page."""
    app = App("starved")

    @app.workflow
    async def waits_for_a_worker(ctx: Context) -> int:
        return 1

    client = await house.client()
    handle = await client.start(waits_for_a_worker)
    await _park(house, handle.run_id, "unknown_workflow")
    for number in range(ROUND_MAX + 1):
        await asyncio.sleep(0.01)
        await client.start("nobody", run_id=f"hopeless-{number}")
        await _park(house, f"hopeless-{number}", "quarantine")
    await house.worker(app)
    await house.keeper()

    assert await handle.result(timeout=60) == 1


def _counting(version: str, signals: int) -> tuple[App, Callable[[Context], Awaitable[str]]]:
    app = App(version)

    @app.workflow(name="counting", version=version)
    async def counting(ctx: Context) -> str:
        for _ in range(signals):
            await ctx.signal("go")
        return version

    return app, counting


async def _park(house: House, run_id: str, kind: Literal["unknown_workflow", "quarantine"]) -> None:
    await house.store.append([Append(run=RunRef("default", run_id), mark=Park(kind=kind, reason="a test"))])
