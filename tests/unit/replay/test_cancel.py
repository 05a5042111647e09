"""Cancelling: shown once, at its place among the facts; what the code makes of it counts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.unit.replay.journals import Driver, done, failed, fired, names, unchecked
from tidewheel import App, Context, RunCancelled, StepFailed
from tidewheel.journal import events as ev
from tidewheel.testing import Environment

CANCEL = ev.CancelRequested(reason="changed my mind")
app = App("cancel")


@app.task
async def work(item: int) -> int:
    """A task."""
    return item


@app.task
async def undo(item: int) -> str:
    """A compensation."""
    return f"undone {item}"


def test_a_cancelled_run_ends_cancelled_with_its_reason(cold: bool) -> None:
    """Code that lets the cancellation through ends as ExecutionCancelled."""

    @unchecked()
    async def order(ctx: Context) -> None:
        await ctx.invoke(work, 1)

    driver = Driver(order, cold=cold)
    driver.activate()
    driver.activate(CANCEL)

    assert driver.last == ev.ExecutionCancelled(reason="changed my mind")
    driver.end()


def test_cancel_is_shown_once_and_clean_up_is_durable(cold: bool) -> None:
    """A caught cancel is not raised again at later awaits: clean-up may take steps and time."""

    @unchecked()
    async def order(ctx: Context) -> None:
        try:
            await ctx.invoke(work, 1)
        except asyncio.CancelledError:
            ctx.state["undone"] = await ctx.invoke(undo, 1)
            await ctx.sleep(60)
            ctx.state["signal"] = await ctx.signal("confirmed", timeout=5)
            raise

    driver = Driver(order, cold=cold)
    driver.activate()
    driver.activate(CANCEL)
    driver.activate(done("1", "undone 1"))
    driver.activate(fired("2"), after=60)
    driver.activate(ev.SignalDelivered(signal_name="confirmed", payload="yes", delivery_id=1))

    assert driver.last == ev.ExecutionCancelled(reason="changed my mind")
    assert ev.StateSet(key="signal", value="yes") in driver.events
    driver.end()


def test_cancel_before_the_first_activation_runs_no_code(cold: bool) -> None:
    """The run ends, and nothing of it ever moved."""
    moved: list[str] = []

    @unchecked()
    async def order(ctx: Context) -> None:
        moved.append("moved")

    driver = Driver(order, cold=cold)
    driver.activate(CANCEL)

    assert moved == []
    assert names(driver.events) == ["ExecutionStarted", "CancelRequested", "ExecutionCancelled"]
    driver.end()


@pytest.mark.parametrize("cancel_first", [False, True])
def test_cancel_ready_together_with_a_result_is_neither_lost_nor_doubled(
    cold: bool, cancel_first: bool
) -> None:
    """Facts are shown one at a time in journal order, also a result and a cancel of one activation."""

    @unchecked()
    async def order(ctx: Context) -> list[Any]:
        log: list[Any] = []
        for n in range(2):
            try:
                log.append(await ctx.invoke(work, n))
            except asyncio.CancelledError:
                log.append("cancelled")
        return log

    driver = Driver(order, cold=cold)
    driver.activate()
    facts = [*done("0", 10)]
    driver.activate(*([CANCEL, *facts] if cancel_first else [*facts, CANCEL]))
    if not driver.over:
        driver.activate(done("1", 20))

    assert driver.result == (["cancelled", 20] if cancel_first else [10, "cancelled"])
    driver.end()


def test_code_that_swallows_the_cancel_may_complete(cold: bool) -> None:
    """Completed after CancelRequested is legal: the code chose to."""

    @unchecked()
    async def order(ctx: Context) -> str:
        try:
            await ctx.sleep(100)
        except asyncio.CancelledError:
            return "finished anyway"
        return "slept"

    driver = Driver(order, cold=cold)
    driver.activate()
    driver.activate(CANCEL)

    assert driver.result == "finished anyway"
    assert names(driver.events)[-4:] == [
        "CancelRequested", "ExecutionResumed", "TimerCancelled", "ExecutionCompleted"
    ]  # fmt: skip
    driver.end()


def test_code_that_fails_in_its_clean_up_has_failed(cold: bool) -> None:
    """Failed after CancelRequested is legal too."""

    @unchecked()
    async def order(ctx: Context) -> None:
        try:
            await ctx.invoke(work, 1)
        finally:
            await ctx.invoke(undo, 1)

    driver = Driver(order, cold=cold)
    driver.activate()
    driver.activate(CANCEL)
    driver.activate(failed("1"))

    assert driver.error.type == "Broken"
    driver.end()


@pytest.mark.parametrize("how", ["gather", "group", "shield", "wait"])
def test_branches_see_the_cancel_once(how: str, cold: bool) -> None:
    """Each pending branch sees CancelledError once, in order, and may clean up durably."""
    log: list[str] = []

    @unchecked()
    async def order(ctx: Context) -> None:
        log.clear()

        async def branch(n: int) -> None:
            try:
                await ctx.invoke(work, n)
            except asyncio.CancelledError:
                log.append(f"cancelled {n}")
                await ctx.invoke(undo, n)
                log.append(f"undone {n}")
                raise

        match how:
            case "gather":
                await asyncio.gather(branch(0), branch(1))
            case "group":
                async with asyncio.TaskGroup() as group:
                    group.create_task(branch(0))
                    group.create_task(branch(1))
            case "shield":
                asyncio.create_task(branch(0))  # noqa: RUF006 - the loop keeps it
                await asyncio.shield(branch(1))
            case _:
                await asyncio.wait([asyncio.create_task(branch(n)) for n in range(2)])

    driver = Driver(order, cold=cold)
    driver.activate()
    driver.activate(CANCEL)
    assert log == ["cancelled 0", "cancelled 1"]
    driver.activate(done("3", "x"))
    driver.activate(done("2", "x"))

    assert log == ["cancelled 0", "cancelled 1", "undone 1", "undone 0"]
    assert driver.last == ev.ExecutionCancelled(reason="changed my mind")
    driver.end()


def test_a_branch_that_cleans_up_when_the_code_ends_is_not_told_twice(cold: bool) -> None:
    """Cancelled by hand and left alone, its durable clean-up is not cut off by the end of the code."""

    @unchecked()
    async def order(ctx: Context) -> str:
        async def branch() -> None:
            try:
                await ctx.invoke(work, 1)
            finally:
                await ctx.invoke(undo, 1)
                ctx.state["undone"] = True

        other = asyncio.create_task(branch())
        await ctx.sleep(1)
        other.cancel()
        return "done"

    driver = Driver(order, cold=cold)
    driver.activate()
    driver.activate(fired("0"), after=1)
    assert driver.waits_on == ["2"]
    driver.activate(done("2", "undone 1"))

    assert driver.result == "done"
    assert ev.StateSet(key="undone", value=True) in driver.events
    driver.end()


def test_a_branch_that_goes_on_after_its_clean_up_is_cancelled_then(cold: bool) -> None:
    """A timeout's clean-up is let through; what the branch does after it does not hold up the end."""

    @unchecked()
    async def order(ctx: Context) -> str:
        async def branch() -> None:
            try:
                async with asyncio.timeout(1):
                    try:
                        await ctx.signal("never")
                    finally:
                        await ctx.invoke(undo, 1)
            except TimeoutError:
                await ctx.sleep(10**6)

        asyncio.create_task(branch())  # noqa: RUF006 - the loop keeps it
        await ctx.sleep(2)
        return "done"

    driver = Driver(order, cold=cold)
    driver.activate()
    driver.activate(fired("1"), after=1)
    driver.activate(fired("0"), after=1)
    assert not driver.over
    driver.activate(done("3", "undone 1"))

    assert driver.result == "done"
    driver.end()


def test_code_that_cancels_itself_has_failed(cold: bool) -> None:
    """Nobody asked the run to stop, so it did not end as cancelled."""

    @unchecked()
    async def order(ctx: Context) -> None:
        await ctx.sleep(1)
        me = asyncio.current_task()
        assert me is not None
        me.cancel()
        await ctx.sleep(1)

    driver = Driver(order, cold=cold)
    driver.activate()
    driver.activate(fired("0"), after=1)

    assert driver.error.type == "CancelledError"
    driver.end()


def test_code_that_cancels_itself_before_an_unseen_cancel_has_failed(cold: bool) -> None:
    """A terminal append beats facts it has not seen."""

    @unchecked()
    async def order(ctx: Context) -> None:
        await ctx.sleep(1)
        raise asyncio.CancelledError

    driver = Driver(order, cold=cold)
    driver.activate()
    driver.activate(fired("0"), CANCEL, after=1)

    assert driver.error.type == "CancelledError"
    driver.end()


def test_a_second_cancel_changes_nothing(cold: bool) -> None:
    """The code sees one cancel, however often it was journaled by a careless writer."""

    @unchecked()
    async def order(ctx: Context) -> str:
        try:
            await ctx.sleep(100)
        except asyncio.CancelledError:
            await ctx.sleep(5)
        return "cleaned up"

    driver = Driver(order, cold=cold)
    driver.activate()
    driver.activate(CANCEL)
    driver.activate(ev.CancelRequested(reason="again"))
    driver.activate(fired("1"), after=5)

    assert driver.result == "cleaned up"


async def test_children_are_cancelled_with_their_parent() -> None:
    """The parent's end, or its giving up on a child, asks the child to stop."""

    @app.workflow
    async def nested(ctx: Context, n: int) -> str:
        try:
            await ctx.sleep(1000)
        finally:
            await ctx.invoke(undo, n)
        return "slept"

    @app.workflow
    async def parent(ctx: Context) -> None:
        await asyncio.gather(ctx.invoke(nested, 1), ctx.invoke(nested, 2))

    @app.workflow
    async def impatient(ctx: Context) -> str:
        try:
            async with asyncio.timeout(5):
                await ctx.invoke(nested, 3)
        except TimeoutError:
            return "gave up"
        return "waited"

    async with Environment(app) as env:
        handle = await env.client.start(parent, run_id="family")
        await env.settle()
        await handle.cancel("enough")
        with pytest.raises(RunCancelled, match="enough"):
            await handle.result()
        await env.settle()
        assert await env.client.handle("family:0").status() == "CANCELLED"
        assert await env.client.handle("family:1").status() == "CANCELLED"

        other = await env.client.start(impatient, run_id="impatient")
        assert await other.result() == "gave up"
        await env.settle()
        child_id = next(run_id for run_id in env.engine.runs if run_id.startswith("impatient:"))
        assert await env.client.handle(child_id).status() == "CANCELLED"


async def test_a_cancelled_child_is_a_failed_step_to_its_parent() -> None:
    """The parent was not cancelled: it gets StepFailed, and decides."""
    family = App("family")

    @family.workflow
    async def nested(ctx: Context) -> None:
        await ctx.sleep(1000)

    @family.workflow
    async def parent(ctx: Context) -> str:
        try:
            await ctx.invoke(nested)
        except StepFailed as problem:
            return problem.error_type
        return "fine"

    async with Environment(family) as env:
        handle = await env.client.start(parent, run_id="family")
        await env.settle()
        await env.client.handle("family:0").cancel("by hand")

        assert await handle.result() == "RunCancelled"
