"""asyncio on the deterministic loop: everything works, in an order that follows from the journal."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.unit.replay.journals import Driver, done, failed, fired, given_to_steps, names, paths_of, unchecked
from tidewheel import App, Context, StepFailed
from tidewheel.journal import events as ev

app = App("loop")


@app.task
async def work(item: int) -> int:
    """A task."""
    return item


def test_gather_gives_results_in_the_order_of_its_arguments(cold: bool) -> None:
    """Completion order does not matter to gather, only what was asked where."""

    @unchecked()
    async def order(ctx: Context) -> list[int]:
        return list(await asyncio.gather(*(ctx.invoke(work, n) for n in range(3))))

    driver = Driver(order, cold=cold)
    driver.activate()
    driver.activate(done("2", 22), done("0", 0))
    driver.activate(done("1", 11))

    assert driver.result == [0, 11, 22]
    driver.end()


def test_gather_of_coroutines_numbers_their_commands_in_argument_order(cold: bool) -> None:
    """Each branch runs to its first wait before the next begins."""

    @unchecked()
    async def order(ctx: Context) -> list[list[int]]:
        async def two(n: int) -> list[int]:
            return [await ctx.invoke(work, n), await ctx.invoke(work, n + 10)]

        return list(await asyncio.gather(*(two(n) for n in range(3))))

    driver = Driver(order, cold=cold)
    first = driver.activate()
    second = driver.activate(done("2", 2), done("0", 0))

    assert given_to_steps(first) == [[0], [1], [2]]
    assert given_to_steps(second) == [[12], [10]]
    driver.activate(done("4", 10), done("3", 12))
    driver.activate(done("1", 1))
    driver.activate(done("5", 11))
    assert driver.result == [[0, 10], [1, 11], [2, 12]]
    driver.end()


def test_a_task_group_cancels_the_others_when_one_fails(cold: bool) -> None:
    """The abort reaches the branches oldest first, and each may clean up durably."""

    @unchecked()
    async def order(ctx: Context) -> list[Any]:
        log: list[Any] = []

        async def branch(n: int) -> None:
            try:
                await ctx.invoke(work, n)
            except asyncio.CancelledError:
                log.append(n)
                log.append(await ctx.invoke(work, 100 + n))
                raise

        try:
            async with asyncio.TaskGroup() as group:
                for n in range(4):
                    group.create_task(branch(n))
        except* StepFailed as problems:
            log.append(len(problems.exceptions))
        return log

    driver = Driver(order, cold=cold)
    driver.activate()
    asked = driver.activate(failed("1"))
    assert given_to_steps(asked) == [[100], [102], [103]]
    driver.activate(done("6", 3), done("4", 1), done("5", 2))

    assert driver.result == [0, 2, 3, 3, 1, 2, 1]
    driver.end()


def test_timeout_is_a_durable_timer(cold: bool) -> None:
    """asyncio.timeout fires when the journal says so, and its clean-up is journaled."""

    @unchecked()
    async def order(ctx: Context) -> str:
        try:
            async with asyncio.timeout(5):
                await ctx.invoke(work, 1)
        except TimeoutError:
            return "late"
        return "in time"

    driver = Driver(order, cold=cold)
    assert names(driver.activate()) == ["TimerScheduled", "InvokeScheduled", "ExecutionAwaiting"]
    driver.activate(fired("0"), after=5)

    assert driver.result == "late"
    driver.end()


def test_a_timer_that_is_no_longer_needed_is_cancelled_by_a_command(cold: bool) -> None:
    """A cancelled timer handle is journaled, and matched like any command."""

    @unchecked()
    async def order(ctx: Context) -> list[int]:
        found = []
        for n in range(2):
            async with asyncio.timeout(5):
                found.append(await ctx.invoke(work, n))
        return found

    driver = Driver(order, cold=cold)
    driver.activate()
    asked = driver.activate(done("1", 7))
    assert names(asked)[:3] == ["ExecutionResumed", "TimerCancelled", "TimerScheduled"]
    driver.activate(done("3", 8))

    assert driver.result == [7, 8]
    assert names(driver.events)[-3:] == ["ExecutionResumed", "TimerCancelled", "ExecutionCompleted"]
    driver.end()


def test_wait_for_gives_up_durably(cold: bool) -> None:
    """asyncio.wait_for ends in TimeoutError, live and on replay."""

    @unchecked()
    async def order(ctx: Context) -> list[Any]:
        found: list[Any] = []
        for seconds in (1, 100):
            try:
                found.append(await asyncio.wait_for(ctx.invoke(work, seconds), seconds))
            except TimeoutError:
                found.append("late")
        return found

    driver = Driver(order, cold=cold)
    driver.activate()
    timers = paths_of(ev.TimerScheduled, driver.events)
    driver.activate(fired(timers[0]), after=1)
    steps = paths_of(ev.InvokeScheduled, driver.events)
    driver.activate(done(steps[1], 42))

    assert driver.result == ["late", 42]
    driver.end()


def test_as_completed_gives_results_in_the_order_shown(cold: bool) -> None:
    """Coroutines begin in argument order; results come in the order of the facts."""

    @unchecked()
    async def order(ctx: Context) -> list[int]:
        async def branch(n: int) -> int:
            return await ctx.invoke(work, n)

        return [await soonest for soonest in asyncio.as_completed([branch(n) for n in range(4)])]

    driver = Driver(order, cold=cold)
    asked = driver.activate()
    assert given_to_steps(asked) == [[0], [1], [2], [3]]
    driver.activate(done("2", 2), done("0", 0))
    driver.activate(done("3", 3), done("1", 1))

    assert driver.result == [2, 0, 3, 1]
    driver.end()


@pytest.mark.parametrize(
    ("until", "moves_at"),
    [(asyncio.FIRST_COMPLETED, 1), (asyncio.FIRST_EXCEPTION, 2), (asyncio.ALL_COMPLETED, 3)],
)
def test_wait_returns_when_told_with_its_sets_in_order(until: str, moves_at: int, cold: bool) -> None:
    """The sets that asyncio.wait returns iterate in the order the caller gave."""

    @unchecked()
    async def order(ctx: Context) -> list[list[str]]:
        tasks = [asyncio.create_task(_awaited(ctx.invoke(work, n)), name=str(n)) for n in range(3)]
        finished, pending = await asyncio.wait(tasks, return_when=until)
        for one in pending:
            one.cancel()
        await asyncio.wait(tasks)
        assert all(one.cancelled() or one.exception() is None or one.get_name() == "0" for one in tasks)
        return [[one.get_name() for one in finished], [one.get_name() for one in pending]]

    driver = Driver(order, cold=cold)
    driver.activate()
    for facts in (done("2", 2), failed("0"), done("1", 1))[:moves_at]:
        driver.activate(facts)

    finished = sorted(["2", "0", "1"][:moves_at])
    assert driver.result == [finished, [name for name in "012" if name not in finished]]
    driver.end()


def test_shield_keeps_the_inner_step_alive(cold: bool) -> None:
    """A timeout around a shield abandons the wait, not the step."""

    @unchecked()
    async def order(ctx: Context) -> list[Any]:
        step = ctx.start(work, 1)
        try:
            async with asyncio.timeout(1):
                await asyncio.shield(step)
        except TimeoutError:
            return ["late", await step]
        return ["early"]

    driver = Driver(order, cold=cold)
    driver.activate()
    driver.activate(fired("1"), after=1)
    driver.activate(done("0", 5))

    assert driver.result == ["late", 5]
    driver.end()


@pytest.mark.parametrize("primitive", ["event", "lock", "semaphore", "condition", "queue", "barrier"])
def test_primitives_wake_their_waiters_first_come_first_served(primitive: str, cold: bool) -> None:
    """Event, Lock, Semaphore, Condition, Queue and Barrier behave as under asyncio's own loop."""

    @unchecked()
    async def order(ctx: Context) -> list[int]:
        log: list[int] = []
        event, lock, slots, changed = (
            asyncio.Event(),
            asyncio.Lock(),
            asyncio.Semaphore(1),
            asyncio.Condition(),
        )
        queue: asyncio.Queue[int] = asyncio.Queue()
        barrier = asyncio.Barrier(3)

        async def branch(n: int) -> None:
            match primitive:
                case "event":
                    await event.wait()
                case "lock":
                    async with lock:
                        await ctx.sleep(1)
                case "semaphore":
                    async with slots:
                        await ctx.sleep(1)
                case "condition":
                    async with changed:
                        await changed.wait()
                case "queue":
                    await queue.get()
                case _:
                    await barrier.wait()
            log.append(n)

        async with asyncio.TaskGroup() as group:
            for n in range(3):
                group.create_task(branch(n))
            await ctx.sleep(1)
            event.set()
            async with changed:
                changed.notify_all()
            for n in range(3):
                queue.put_nowait(n)
        return log

    driver = Driver(order, cold=cold)
    driver.activate()
    while not driver.over:
        driver.activate(*(fired(path) for path in driver.waits_on), after=1)

    assert driver.result == ([2, 0, 1] if primitive == "barrier" else [0, 1, 2])
    driver.end()


def test_plain_tasks_are_named_by_their_run(cold: bool) -> None:
    """Default task names do not come from the process-wide counter, so replay sees the same."""
    seen: list[list[str]] = []

    @unchecked()
    async def order(ctx: Context) -> list[str]:
        async def name() -> str:
            await ctx.sleep(1)
            current = asyncio.current_task()
            assert current is not None
            return current.get_name()

        found = await asyncio.gather(asyncio.create_task(name()), asyncio.create_task(name(), name="mine"))
        seen.append(list(found))
        return list(found)

    for _ in range(2):
        driver = Driver(order, cold=cold)
        driver.activate()
        driver.activate(fired("0"), fired("1"), after=1)
        driver.crash()
        driver.execution.replay()
        driver.end()

    assert all(found == seen[0] for found in seen)
    assert seen[0][1] == "mine"
    assert "Task-" not in seen[0][0]


def test_async_context_managers_clean_up_durably(cold: bool) -> None:
    """What stands after a yield is a command like any other."""

    @unchecked()
    async def order(ctx: Context) -> list[int]:
        found = []

        @asynccontextmanager
        async def held(n: int) -> AsyncIterator[int]:
            yield await ctx.invoke(work, n)
            found.append(await ctx.invoke(work, -n))

        async with held(1) as one:
            found.append(one)
        return found

    driver = Driver(order, cold=cold)
    driver.activate()
    driver.activate(done("0", 10))
    driver.activate(done("1", -10))

    assert driver.result == [10, -10]
    driver.end()


def test_abandoned_generators_are_closed_at_the_end_in_order(cold: bool) -> None:
    """Not when the collector finds them: oldest first, once the code has ended, durably."""
    closed: list[int] = []

    @unchecked()
    async def order(ctx: Context) -> list[int]:
        async def numbers(n: int) -> AsyncIterator[int]:
            try:
                while True:
                    yield n
            finally:
                await ctx.invoke(work, n)
                closed.append(n)

        return [value for n in range(3) async for value in _first(numbers(n))]

    driver = Driver(order, cold=cold)
    for n in range(3):
        driver.activate(*([done(str(n - 1), 0)] if n else []))
        assert driver.waits_on == [str(n)]
    closed.clear()
    driver.activate(done("2", 0))

    assert driver.result == [0, 1, 2]
    assert closed == ([2] if not cold else [0, 1, 2])
    driver.end()


def test_a_generator_that_fails_to_close_does_not_keep_the_others_open(
    cold: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Each abandoned generator is closed, whatever another one does in its ``finally``."""
    closed: list[int] = []

    @unchecked()
    async def order(ctx: Context) -> str:
        async def numbers(n: int) -> AsyncIterator[int]:
            try:
                yield n
            finally:
                closed.append(n)
                if n == 0:
                    raise ValueError("cannot close")

        async for _ in numbers(0):
            break
        async for _ in numbers(1):
            break
        return "done"

    driver = Driver(order, cold=cold)
    driver.activate()

    assert driver.result == "done"
    assert closed == [0, 1]
    assert "cannot close" in caplog.text
    driver.end()


def test_a_generator_that_a_branch_is_inside_of_is_left_to_the_branch(
    cold: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The branch was cancelled and cleans up in the generator: closing that too would be an error."""

    @unchecked()
    async def order(ctx: Context) -> str:
        async def numbers() -> AsyncIterator[int]:
            try:
                yield await ctx.signal("never", into=int)
            finally:
                await ctx.invoke(work, 1)

        async def consume() -> None:
            async for _ in numbers():
                pass

        asyncio.create_task(consume())  # noqa: RUF006 - the loop keeps it
        await ctx.sleep(1)
        return "done"

    driver = Driver(order, cold=cold)
    driver.activate()
    driver.activate(fired("0"), after=1)
    assert driver.waits_on == ["2"]
    driver.activate(done("2", 1))

    assert driver.result == "done"
    assert caplog.records == []
    driver.end()


def test_context_variables_of_the_worker_do_not_leak_in_or_out(cold: bool) -> None:
    """Workflow code starts in an empty context, and what it sets stays in it."""
    variable = contextvars.ContextVar("variable", default="nothing")

    @unchecked()
    async def order(ctx: Context) -> list[str]:
        found = [variable.get()]
        variable.set("workflow")

        async def branch() -> str:
            before = variable.get()
            variable.set("branch")
            await ctx.sleep(1)
            return f"{before}, {variable.get()}"

        found.append(await asyncio.create_task(branch()))
        return [*found, variable.get()]

    variable.set("worker")
    driver = Driver(order, cold=cold)
    driver.activate()
    driver.activate(fired("0"), after=1)

    assert driver.result == ["nothing", "workflow, branch", "workflow"]
    assert variable.get() == "worker"
    driver.end()


async def _awaited(promise: Any) -> Any:
    return await promise


async def _first(numbers: AsyncIterator[int]) -> AsyncIterator[int]:
    async for number in numbers:
        yield number
        return
