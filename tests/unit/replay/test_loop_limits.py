"""Where the deterministic loop says no, and what becomes of code that goes wrong in it."""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
from typing import Any

import pytest

from tests.unit.replay.journals import Driver, done, fired, names, unchecked
from tidewheel import App, Context
from tidewheel.journal import events as ev
from tidewheel.replay import loop

app = App("limits")


@app.task
async def work(item: int) -> int:
    """A task."""
    return item


# Exceptions nobody awaits


@pytest.mark.parametrize("cyclic", [False, True], ids=["plain", "in a cycle"])
def test_an_exception_nobody_awaits_is_logged_once_live(
    cyclic: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It must not vanish, also where the garbage collector would find it late."""

    @unchecked()
    async def order(ctx: Context) -> str:
        async def fails() -> None:
            me = asyncio.current_task() if cyclic else None
            raise ValueError(f"unheard {me is None}")

        asyncio.create_task(fails())  # noqa: RUF006 - nobody keeps it, which is the point
        await ctx.sleep(1)
        return "done"

    driver = Driver(order)
    driver.activate()
    driver.activate(fired("0"), after=1)
    recorded = driver.end()
    gc.collect()

    logged = [record for record in caplog.records if record.exc_info and "unheard" in str(record.exc_info[1])]
    assert len(logged) == 1
    assert logged[0].levelno == logging.ERROR
    assert "run" in logged[0].getMessage()
    caplog.clear()

    again = Driver(order, recorded=recorded)
    again.execution.replay()
    again.execution.evict()
    gc.collect()
    assert caplog.records == []


def test_a_failed_step_nobody_awaits_is_logged_live(caplog: pytest.LogCaptureFixture) -> None:
    """A started step whose failure reaches nobody is said, like a branch."""

    @unchecked()
    async def order(ctx: Context) -> str:
        ctx.start(work, 1)
        await ctx.sleep(1)
        return "done"

    driver = Driver(order)
    driver.activate()
    result = ev.Result(error=ev.Error(type="Broken", message="unheard step"))
    driver.activate(
        ev.InvokeStarted(promise_id="0", attempt=1),
        ev.InvokeCompleted(promise_id="0", result=result, attempt=1),
        fired("1"),
        after=1,
    )
    driver.end()
    gc.collect()

    assert driver.result == "done"
    assert len([record for record in caplog.records if record.exc_info]) == 1


# Never coming to rest


def test_a_loop_that_awaits_nothing_durable_is_stopped(monkeypatch: pytest.MonkeyPatch, cold: bool) -> None:
    """``while True: await asyncio.sleep(0)`` fails the run instead of holding the worker for ever."""
    monkeypatch.setattr(loop, "TICKS_MAX", 1000)

    @unchecked()
    async def order(ctx: Context) -> None:
        await ctx.sleep(1)
        while True:  # noqa: ASYNC110 - this is what is tried
            await asyncio.sleep(0)

    driver = Driver(order, cold=cold)
    driver.activate()
    driver.activate(fired("0"), after=1)

    assert driver.error.type == "Spinning"
    assert "1,000 steps" in driver.error.message
    assert "ctx.sleep" in driver.error.message
    driver.end()


@pytest.mark.parametrize("on", ["event", "future", "queue", "lock"])
def test_a_wait_that_nothing_can_end_is_a_deadlock(on: str, cold: bool) -> None:
    """A run that waits for nothing durable would wait for ever: it fails and says why."""

    @unchecked()
    async def order(ctx: Context) -> None:
        await ctx.sleep(1)
        match on:
            case "event":
                await asyncio.Event().wait()
            case "future":
                await asyncio.get_running_loop().create_future()
            case "queue":
                await asyncio.Queue[int]().get()
            case _:
                lock = asyncio.Lock()
                async with lock, lock:
                    pass

    driver = Driver(order, cold=cold)
    driver.activate()
    driver.activate(fired("0"), after=1)

    assert driver.error.type == "Deadlock"
    assert "can never happen" in driver.error.message
    driver.end()


# Leaving


def test_exiting_the_process_from_workflow_code_fails_the_run_only(cold: bool) -> None:
    """``sys.exit()`` in a workflow must not end the worker: each next worker would end too."""

    @unchecked()
    async def order(ctx: Context) -> None:
        await ctx.sleep(1)
        sys.exit("enough")

    driver = Driver(order, cold=cold)
    driver.activate()
    driver.activate(fired("0"), after=1)

    assert driver.error.type == "SystemExit"
    assert driver.error.message == "enough"
    driver.end()


def test_exiting_from_a_branch_reaches_whoever_awaits_it(cold: bool) -> None:
    """As any exception does."""

    @unchecked()
    async def order(ctx: Context) -> str:
        async def branch() -> None:
            await ctx.sleep(1)
            raise SystemExit(3)

        try:
            await asyncio.create_task(branch())
        except SystemExit as left:
            return f"left with {left.code}"
        return "stayed"

    driver = Driver(order, cold=cold)
    driver.activate()
    driver.activate(fired("0"), after=1)

    assert driver.result == "left with 3"
    driver.end()


def test_an_interrupt_reaches_the_worker() -> None:
    """Ctrl-C while workflow code moves is meant for the process; the loop is left properly."""

    @unchecked()
    async def order(ctx: Context) -> None:
        raise KeyboardInterrupt

    driver = Driver(order)
    with pytest.raises(KeyboardInterrupt):
        driver.activate()

    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()
    driver.execution.evict()


# Things of another loop


def test_a_lock_at_module_level_says_where_to_create_it() -> None:
    """A primitive binds to the first run that waits on it; the second is told what to do."""
    lock = asyncio.Lock()

    @unchecked()
    async def order(ctx: Context) -> None:
        async def hold() -> None:
            async with lock:
                await ctx.sleep(1)

        await asyncio.gather(hold(), hold())

    first, second = Driver(order), Driver(order)
    first.activate()
    second.activate()

    assert second.error.type == "RuntimeError"
    assert "create it inside the workflow, not at module level" in second.error.message
    first.execution.evict()
    second.end()


@pytest.mark.parametrize(
    "call", ["to_thread", "open_connection", "run_in_executor", "subprocess", "server", "dns"]
)
def test_real_io_is_refused_with_the_way_out(call: str, recwarn: pytest.WarningsRecorder) -> None:
    """What would leave the loop raises at once, and the message names tasks and ctx.run."""

    @unchecked()
    async def order(ctx: Context) -> None:
        running = asyncio.get_running_loop()
        match call:
            case "to_thread":
                await asyncio.to_thread(print, "hello")
            case "open_connection":
                await asyncio.open_connection("localhost", 80)
            case "run_in_executor":
                await running.run_in_executor(None, print)
            case "subprocess":
                await asyncio.create_subprocess_exec("true", stdout=subprocess.DEVNULL)
            case "server":
                await asyncio.start_server(lambda _r, _w: None, "localhost", 0)
            case _:
                await running.getaddrinfo("localhost", 80)

    driver = Driver(order)
    driver.activate()

    assert driver.error.type == "ForbiddenInWorkflow"
    assert "ctx.invoke(task, ...)" in driver.error.message
    assert "ctx.run(key, fn)" in driver.error.message
    driver.end()
    gc.collect()
    assert list(recwarn) == []


# Time


@pytest.mark.parametrize("seconds", [0, -1, -0.5])
def test_sleeping_no_time_needs_no_timer(seconds: float, cold: bool) -> None:
    """sleep(0) lets others go first; it is not a timer, and neither are negative sleeps."""

    @unchecked()
    async def order(ctx: Context) -> list[str]:
        log: list[str] = []

        async def other() -> None:
            log.append("other")

        branch = asyncio.create_task(other())
        await asyncio.sleep(seconds)
        log.append("main")
        await ctx.sleep(seconds)
        await branch
        return log

    driver = Driver(order, cold=cold)

    assert names(driver.activate()) == ["ExecutionCompleted"]
    assert driver.result == ["other", "main"]
    driver.end()


def test_a_timeout_of_no_time_needs_no_timer(cold: bool) -> None:
    """asyncio.timeout(0) ends the wait at once, without a trace of a timer."""

    @unchecked()
    async def order(ctx: Context) -> str:
        try:
            async with asyncio.timeout(0):
                await ctx.invoke(work, 1)
        except TimeoutError:
            return "late"
        return "in time"

    driver = Driver(order, cold=cold)
    driver.activate()

    assert driver.result == "late"
    assert names(driver.events) == ["ExecutionStarted", "InvokeScheduled", "ExecutionCompleted"]
    driver.end()


def test_time_stands_still_while_the_code_moves(cold: bool) -> None:
    """loop.time() is the latest moment the code was shown, on replay too."""

    @unchecked()
    async def order(ctx: Context) -> list[float]:
        running = asyncio.get_running_loop()
        moments = [running.time()]
        for n in range(2):
            await ctx.invoke(work, n)
            moments.append(running.time())
        return [moment - moments[0] for moment in moments]

    driver = Driver(order, cold=cold)
    driver.activate()
    driver.activate(done("0", 0), after=2.5)
    driver.activate(done("1", 0), after=4)

    assert driver.result == [0, 2.5, 6.5]
    driver.end()


def test_time_seen_without_a_command_is_recorded(cold: bool) -> None:
    """Code that looked at the time and asked for nothing is not shown another time on replay."""

    @unchecked()
    async def order(ctx: Context) -> list[Any]:
        running = asyncio.get_running_loop()
        began = running.time()
        seen: list[Any] = []

        async def watch(n: int) -> None:
            await ctx.invoke(work, n)
            seen.append(running.time() - began)

        await asyncio.gather(watch(0), watch(1))
        return seen

    driver = Driver(order, cold=cold)
    driver.activate()
    driver.activate(done("0", 0), after=3)
    driver.activate(done("1", 0), after=4)

    assert driver.result == [3, 7]
    driver.end()
