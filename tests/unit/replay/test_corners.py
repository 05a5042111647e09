"""Corners where features meet: sets that grow, twins given up, swallowed violations, carried signals."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.unit.replay.journals import (
    START,
    Driver,
    awaiting,
    begun,
    definition,
    delivered,
    done,
    journal,
    operation,
    resumed,
    task,
    unchecked,
)
from tidewheel import App, Context, InvalidRequest, RunFailed
from tidewheel.journal import events as ev
from tidewheel.journal.ids import PromiseId
from tidewheel.sdk.program import execution_of
from tidewheel.testing import Environment, replay
from tidewheel.testing.engine import SeededEntropy

app = App("corners")


@app.task
async def work(item: int) -> int:
    """A task."""
    return item


# What asyncio.wait returns


def test_a_pool_that_refills_the_pending_set_works(cold: bool) -> None:
    """The sets that ``asyncio.wait`` returns are sets: what is added to them is there."""

    @unchecked()
    async def pool(ctx: Context) -> list[int]:
        pending: set[Any] = {ctx.invoke(work, 0), ctx.invoke(work, 1)}
        found, asked = [], 2
        while pending:
            done_, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            found += [await one for one in done_]
            if asked < 5:
                pending.add(ctx.invoke(work, asked))
                asked += 1
        return found

    driver = Driver(pool, cold=cold)
    driver.activate()
    for path in ("1", "0", "2", "4", "3"):
        driver.activate(done(path, int(path)))

    assert driver.result == [1, 0, 2, 4, 3]
    driver.end()


# Twins of a key


def test_a_key_asked_for_again_after_cancels_gets_its_result(cold: bool) -> None:
    """Whoever gave up, the shown result of a step is there for everybody who asks."""

    @unchecked()
    async def order(ctx: Context) -> list[int]:
        first, second, third = (ctx.start(work, 1, key="k") for _ in range(3))
        third.cancel()
        first.cancel()
        return [await second, await ctx.invoke(work, 1, key="k")]

    driver = Driver(order, cold=cold)
    driver.activate()
    driver.activate(done("0", 5))

    assert driver.result == [5, 5]
    driver.end()


def test_twins_wake_in_the_order_they_asked(cold: bool) -> None:
    """The first to ask is the first to move."""

    @unchecked()
    async def order(ctx: Context) -> list[int]:
        woken: list[int] = []

        async def wait(place: int) -> None:
            await ctx.invoke(work, 1, key="k")
            woken.append(place)

        await asyncio.gather(*(wait(place) for place in range(3)))
        return woken

    driver = Driver(order, cold=cold)
    driver.activate()
    driver.activate(done("0", 5))

    assert driver.result == [0, 1, 2]
    driver.end()


# Violations


def test_code_that_swallows_a_violation_for_ever_is_stopped() -> None:
    """A refusal that is caught and asked for again does not hang the worker."""

    @unchecked()
    async def stubborn(ctx: Context) -> int:
        while True:
            try:
                return await ctx.run("k", _other)
            except BaseException:  # noqa: BLE001, S112 - what the test is about
                continue

    driver = Driver(stubborn, recorded=journal(begun(), operation("0", "first", "k"), awaiting("0")))
    driver.activate(done("0", 1))

    assert driver.error.type == "DETERMINISM_VIOLATION"
    driver.end()


def _other() -> int:
    return 2


def test_another_input_under_a_key_is_not_another_order() -> None:
    """Keys cannot be reordered, so a keyed call with another input displaces nothing."""

    @unchecked()
    async def order(ctx: Context) -> int:
        await ctx.invoke(work, 9, key="k")
        return await ctx.invoke(work, 1)

    recorded = journal(begun(), task("0", "work", 1, key="k"), awaiting("0"), done("0", 1), resumed("0"))

    assert replay(order, recorded).to_json() == {
        "outcome": "blocked",
        "waiting_on": ["1"],
        "inputs_changed": 1,
    }


@pytest.mark.parametrize("left", ["submit", "next"])
def test_members_and_results_of_a_join_set_that_are_not_asked_for_are_orphans(left: str) -> None:
    """A set that got smaller does not fit its journal."""

    @unchecked()
    async def order(ctx: Context) -> None:
        members = ctx.join_set()
        first = members.submit(work, 1)
        second = ctx.start(work, 2)
        if left == "next":
            members.submit(second)
        await first
        await second

    recorded = journal(
        begun(),
        ev.JoinSetCreated(join_set_id="0"),
        task("1", "work", 1),
        ev.JoinSetSubmitted(join_set_id="0", promise_id="1"),
        task("2", "work", 2),
        ev.JoinSetSubmitted(join_set_id="0", promise_id="2"),
        awaiting("1", "2"),
        done("1", 1),
        done("2", 2),
        resumed("1", "2"),
        ev.JoinSetAwaited(join_set_id="0", promise_id="1", result=ev.Result(ok=1)),
    )

    report = replay(order, recorded)

    assert report.outcome == "violation"
    assert isinstance(report.orphaned, list)
    assert f"JoinSet(0).{left}" in report.orphaned


async def test_a_workflow_sees_its_own_run_id_on_replay() -> None:
    """The journal says whose it is."""

    @app.workflow
    async def named(ctx: Context) -> str:
        return ctx.run_id

    async with Environment(app) as env:
        handle = await env.client.start(named, run_id="order-42")
        assert await handle.result() == "order-42"
        entries = await handle.journal()

    assert replay(named, entries).result == "order-42"


def test_a_changed_state_value_is_the_journals() -> None:
    """Another input gives what was recorded, for state as for steps."""

    @unchecked()
    async def order(ctx: Context) -> Any:
        ctx.state["k"] = 2
        return ctx.state["k"]

    assert replay(order, journal(begun(), ev.StateSet(key="k", value=1))).result == 1


async def test_an_operation_has_no_queue() -> None:
    """A closure exists in one process only."""

    @app.workflow
    async def queued(ctx: Context) -> int:
        return await ctx.run("k", lambda: 1, queue="gpu")

    async with Environment(app) as env:
        with pytest.raises(RunFailed, match="make it a task to give it a queue"):
            await (await env.client.start(queued)).result()


# Join sets


def test_two_loops_over_one_join_set_both_end(cold: bool) -> None:
    """The one that finds nothing left ends, like any loop."""

    @unchecked()
    async def order(ctx: Context) -> list[int]:
        found: list[int] = []
        async with ctx.join_set() as members:
            for item in range(3):
                members.submit(work, item)

            async def take() -> None:
                found.extend([result async for result in members])

            await asyncio.gather(take(), take())
        return found

    driver = Driver(order, cold=cold)
    driver.activate()
    for path, value in (("1", 10), ("2", 20), ("3", 30)):
        driver.activate(done(path, value))

    assert sorted(driver.result) == [10, 20, 30]
    driver.end()


# Signals


def test_carried_signals_keep_the_order_they_came_in() -> None:
    """Continue-as-new moves deliveries as they arrived, across names."""

    @unchecked()
    async def roll(ctx: Context, again: bool) -> None:
        await ctx.invoke(work, 1)
        if again:
            ctx.continue_as_new(False)

    driver = Driver(roll, True)
    driver.activate()
    arrived = [delivered("a", 1, 1), delivered("b", 2, 1), delivered("a", 3, 2), delivered("b", 4, 2)]
    driver.activate([*arrived, *done("0", 1)])

    carried = [event for event in driver.events[-5:] if isinstance(event, ev.SignalDelivered)]
    assert [event.payload for event in carried] == [1, 2, 3, 4]
    driver.end()


def test_a_cut_between_two_received_signals_changes_nothing() -> None:
    """A wait that received its delivery still stands before younger ones of its name."""

    @unchecked()
    async def order(ctx: Context) -> list[Any]:
        found: list[Any] = []

        async def listen() -> None:
            found.append(await ctx.signal("s"))
            found.append(await ctx.signal("s"))

        async def after_work() -> None:
            await ctx.invoke(work, 1)
            found.append(("late", await ctx.signal("s")))

        await asyncio.gather(listen(), after_work())
        return found

    driver = Driver(order)
    driver.activate()
    driver.activate([*done("1", 1), delivered("s", 1, 1), delivered("s", 2, 2), delivered("s", 3, 3)])
    result, events = driver.result, driver.events
    received = [place for place, event in enumerate(events) if isinstance(event, ev.SignalReceived)]
    driver.end()

    for cut in range(received[0] + 1, len(events)):
        again = Driver(order, recorded=journal(events[:cut]))
        again.activate()
        assert again.result == result
        assert again.events == events
        again.end()


# Admission and registration


def test_a_queued_run_that_is_cancelled_ends_without_running() -> None:
    """Cancelled before its first activation, admitted or not."""

    @unchecked()
    async def order(ctx: Context) -> int:
        return await ctx.invoke(work, 1)

    execution = execution_of(definition(order), PromiseId("run"), entropy=SeededEntropy(0))
    queued = ev.ExecutionStarted(admission="queued", now=START)
    execution.load(journal(queued))
    assert not execution.runnable()
    assert execution.activate(START) is None

    execution.load([ev.Entry(1, START, ev.CancelRequested(reason="no"))])

    assert execution.runnable()
    activation = execution.activate(START)
    assert activation is not None
    assert activation.events == [ev.ExecutionCancelled(reason="no")]
    execution.evict()


def test_one_function_is_one_step_in_every_app() -> None:
    """A second, different registration would change what running code asks for."""
    first, second = App("first"), App("second")

    def pay() -> None:
        """A task."""

    first.task(name="pay")(pay)
    first.task(name="pay")(pay)

    with pytest.raises(InvalidRequest, match=r"registered as 'pay' already"):
        second.task(name="settle")(pay)
    with pytest.raises(InvalidRequest, match="wrap it in a function"):
        second.task(len)
    assert second.tasks == {}
