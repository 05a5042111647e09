"""Keys and named promises: asked for again, they are the same one; each wait is its own."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any

import pytest

from tests.unit.replay.journals import Driver, done, failed, fired, names, resolved, unchecked
from tidewheel import AlreadyResolved, App, Context, InvalidRequest, NotFound, SignalRejected, StepFailed
from tidewheel.journal import events as ev
from tidewheel.testing import Environment

app = App("keys")


@app.task
async def work(item: int) -> int:
    """A task."""
    return item


# Keys


def test_the_same_key_is_the_same_step(cold: bool) -> None:
    """It is scheduled once, whether asked again before or after its result."""

    @unchecked()
    async def order(ctx: Context) -> list[int]:
        first, second = ctx.start(work, 1, key="k"), ctx.start(work, 1, key="k")
        found = [await first, await second]
        return [*found, await ctx.invoke(work, 1, key="k"), await ctx.invoke(work, 2)]

    driver = Driver(order, cold=cold)
    assert names(driver.activate()) == ["InvokeScheduled", "ExecutionAwaiting"]
    driver.activate(done("0", 5))
    driver.activate(done("1", 6))

    assert driver.result == [5, 5, 5, 6]
    scheduled = [(e.n, e.key) for e in driver.events if isinstance(e, ev.InvokeScheduled)]
    assert [key for _n, key in scheduled][:1] == ["k"]
    assert scheduled[1][0] == 0, "keyed commands are numbered apart"
    driver.end()


def test_a_key_that_failed_fails_again(cold: bool) -> None:
    """The journaled result of a key may be an error."""

    @unchecked()
    async def order(ctx: Context) -> list[str]:
        found = []
        for _ in range(2):
            try:
                await ctx.invoke(work, 1, key="k")
            except StepFailed as problem:
                found.append(problem.message)
        return found

    driver = Driver(order, cold=cold)
    driver.activate()
    driver.activate(failed("0", "no luck"))

    assert driver.result == ["no luck", "no luck"]
    driver.end()


def test_one_branch_giving_up_does_not_cancel_the_others_wait(cold: bool) -> None:
    """Asking again gives a promise of one's own, although the step is the same."""

    @unchecked()
    async def order(ctx: Context) -> list[Any]:
        async def impatient() -> Any:
            try:
                async with asyncio.timeout(1):
                    return await ctx.invoke(work, 1, key="k")
            except TimeoutError:
                return "late"

        async def patient() -> Any:
            return await ctx.invoke(work, 1, key="k")

        return list(await asyncio.gather(impatient(), patient(), impatient()))

    driver = Driver(order, cold=cold)
    driver.activate()
    timers = [event.promise_id for event in driver.events if isinstance(event, ev.TimerScheduled)]
    driver.activate(*(fired(path) for path in timers), after=1)
    step = next(event.promise_id for event in driver.events if isinstance(event, ev.InvokeScheduled))
    assert driver.execution.abandoned == {}
    driver.activate(done(step, 5))

    assert driver.result == ["late", 5, "late"]
    driver.end()


def test_a_key_everybody_gave_up_on_is_abandoned_until_asked_again(cold: bool) -> None:
    """The step may stop once nobody waits; its result still counts if it comes."""

    @unchecked()
    async def order(ctx: Context) -> Any:
        for _ in range(2):
            ctx.start(work, 1, key="k").cancel()
        await ctx.sleep(1)
        return await ctx.invoke(work, 1, key="k")

    driver = Driver(order, cold=cold)
    driver.activate()
    if not cold:
        assert list(driver.execution.abandoned) == ["0"]
    driver.activate(done("0", 5))
    driver.activate(fired("1"), after=1)

    assert driver.result == 5
    driver.end()


@pytest.mark.parametrize("key", ["", "a b", "a.b", "a:b", "ü", "x" * 101])
def test_a_key_that_cannot_be_journaled_is_refused(key: str) -> None:
    """Keys are names: anything else is refused at the door, before anything is recorded."""

    @unchecked()
    async def order(ctx: Context) -> None:
        await ctx.run(key, lambda: 1)

    driver = Driver(order)
    driver.activate()

    assert driver.error.type == "InvalidRequest"
    assert names(driver.events) == ["ExecutionStarted", "ExecutionFailed"]
    driver.end()


# Operations


async def test_an_operation_is_executed_once_and_cached() -> None:
    """ctx.run journals the closure's result: replays return it, and the closure is not entered again."""
    operations = App("operations")
    calls: list[int] = []

    @operations.workflow
    async def order(ctx: Context) -> list[int]:
        def quote(n: int) -> int:
            calls.append(n)
            return n * 2

        async def later() -> int:
            calls.append(0)
            return 7

        first = await ctx.run("quote", quote, 21)
        await ctx.sleep(60)
        return [first, await ctx.run("quote", quote, 21), await ctx.run("later", later)]

    async with Environment(operations) as env:
        handle = await env.client.start(order)
        await env.settle()
        env.crash()

        assert await handle.result() == [42, 42, 7]
        assert calls == [21, 0]
        kinds = [e.event.kind for e in await handle.journal() if isinstance(e.event, ev.InvokeScheduled)]
        assert kinds == ["operation", "operation"]


def test_an_operation_is_not_retried_unless_told(cold: bool) -> None:
    """Without retry= its schedule has no policy: only a lost worker has it executed again."""

    @unchecked()
    async def order(ctx: Context) -> None:
        await ctx.run("once", lambda: 1)

    driver = Driver(order, cold=cold)
    asked = driver.activate()

    assert isinstance(asked[0], ev.InvokeScheduled)
    assert asked[0].retry_policy is None
    driver.execution.evict()


def test_a_registered_task_is_not_an_operation() -> None:
    """ctx.run of a task would lose its retries: it says to use ctx.invoke."""

    @unchecked()
    async def order(ctx: Context) -> None:
        await ctx.run("k", work, 1)

    driver = Driver(order)
    driver.activate()

    assert "ctx.invoke(work" in driver.error.message
    driver.end()


# Promises


def test_promises_are_settled_by_name_in_any_order(cold: bool) -> None:
    """PromiseResolved names its promise; the other goes on waiting."""

    @unchecked()
    async def order(ctx: Context) -> list[Any]:
        return list(await asyncio.gather(ctx.promise("a"), ctx.promise("b"), ctx.promise("a")))

    driver = Driver(order, cold=cold)
    assert names(driver.activate()) == ["PromiseCreated", "PromiseCreated", "ExecutionAwaiting"]
    driver.activate(resolved("1", "B"))
    driver.activate(resolved("0", "A"))

    assert driver.result == ["A", "B", "A"]
    driver.end()


def test_a_promise_that_timed_out_may_be_asked_for_again(cold: bool) -> None:
    """The timeout ends one wait; the promise itself stays open and can still be resolved."""

    @unchecked()
    async def order(ctx: Context) -> list[Any]:
        found: list[Any] = []
        for _ in range(3):
            try:
                found.append(await ctx.promise("p", timeout=5))
            except TimeoutError as problem:
                found.append(str(problem))
        return found

    driver = Driver(order, cold=cold)
    driver.activate()
    driver.activate(fired("1"), after=5)
    driver.activate(resolved("0", "there"))

    assert driver.result == ["promise 'p' was not resolved within 5 s", "there", "there"]
    assert names(driver.events).count("PromiseCreated") == 1
    assert names(driver.events).count("TimerCancelled") == 1
    driver.end()


def test_a_promise_resolved_together_with_its_timeout_is_decided_by_the_journal(cold: bool) -> None:
    """The fact that comes first wins."""

    @unchecked()
    async def order(ctx: Context) -> list[Any]:
        try:
            return [await ctx.promise("p", timeout=5)]
        except TimeoutError:
            return ["late", await ctx.promise("p")]

    late = Driver(order, cold=cold)
    late.activate()
    late.activate(fired("1"), resolved("0", "x"), after=5)
    assert late.result == ["late", "x"]
    late.end()

    early = Driver(order, cold=cold)
    early.activate()
    early.activate(resolved("0", "x"), fired("1"), after=5)
    assert early.result == ["x"]
    early.end()


def test_two_waits_for_one_promise_have_their_own_timeouts(cold: bool) -> None:
    """The shorter one ends, the longer one gets the value."""

    @unchecked()
    async def order(ctx: Context) -> list[Any]:
        async def within(seconds: float) -> Any:
            try:
                return await ctx.promise("p", timeout=dt.timedelta(seconds=seconds))
            except TimeoutError:
                return "late"

        return list(await asyncio.gather(within(1), within(10)))

    driver = Driver(order, cold=cold)
    driver.activate()
    driver.activate(fired("1"), after=1)
    driver.activate(resolved("0", "x"), after=1)

    assert driver.result == ["late", "x"]
    driver.end()


async def test_resolving_rejecting_and_refusals() -> None:
    """resolve and reject settle once; unknown names and ended runs are refused."""
    promises = App("promises")

    @promises.workflow
    async def order(ctx: Context) -> list[Any]:
        number = await ctx.promise("number", into=int)
        try:
            await ctx.promise("approval")
        except StepFailed as problem:
            return [number, problem.error_type, problem.message]
        return [number]

    async with Environment(promises) as env:
        handle = await env.client.start(order, run_id="r")
        with pytest.raises(NotFound, match="no promise 'other'; it has: number"):
            await handle.resolve("other", 1)
        await handle.resolve("number", 41)
        with pytest.raises(AlreadyResolved):
            await handle.resolve("number", 42)
        with pytest.raises(AlreadyResolved):
            await handle.reject("number", "no")
        await handle.reject("approval", "not today")

        assert await handle.result() == [41, "Rejected", "not today"]
        with pytest.raises(SignalRejected):
            await handle.resolve("number", 43)


def test_a_result_of_another_type_than_asked_is_the_codes_to_handle(cold: bool) -> None:
    """A payload that does not fit raises where it is awaited, and says which."""

    @unchecked()
    async def order(ctx: Context) -> str:
        try:
            await ctx.promise("number", into=int)
        except InvalidRequest as problem:
            return str(problem)
        return "fine"

    driver = Driver(order, cold=cold)
    driver.activate()
    driver.activate(resolved("0", "not a number"))

    assert "number" in driver.result
    assert driver.result != "fine"
    driver.end()
