"""Join sets: results in the order shown, each handed out once; closed at the first ``next()``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.replay.journals import Driver, done, failed, fired, names, unchecked
from tidewheel import App, Context, InvalidRequest, Retry, StepFailed
from tidewheel.journal import events as ev
from tidewheel.testing import Environment

app = App("join-sets")


@app.task
async def work(item: int) -> int:
    """A task."""
    return item


@app.task
async def fetch_user(user: int) -> dict[str, Any]:
    """Seed 000's first step."""
    return {"id": user}


@app.task(retry=Retry(max_attempts=2, initial=1, jitter=0))
async def send_email(user: dict[str, Any]) -> str:
    """A member that fails once."""
    return "email sent"


@app.task
async def send_sms(user: dict[str, Any]) -> str:
    """A member that is done first."""
    return "sms sent"


@app.workflow
async def notify(ctx: Context) -> list[Any]:
    """Seed 000's full example."""
    ctx.random()
    user = await ctx.invoke(fetch_user, 42)
    joined = ctx.join_set()
    joined.submit(send_email, user)
    joined.submit(send_sms, user)
    return [await joined.next(), await joined.next()]


# Seed 000's full example


async def test_the_full_example_of_the_seed_event_by_event() -> None:
    """A task, randomness, a join set and a retry give exactly the seed's journal."""
    attempts = 0

    def flaky(_user: dict[str, Any]) -> str:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise ConnectionError("try again")
        return "email sent"

    async with Environment(app) as env:
        env.fake(fetch_user, takes=1)
        env.fake(send_sms, takes=1)
        env.fake(send_email, flaky, takes=2)
        handle = await env.client.start(notify)

        assert await handle.result() == ["sms sent", "email sent"]
        entries = await handle.journal()

    told = [(type(entry.event).__name__, *_ids(entry.event)) for entry in entries]
    assert told == [
        ("ExecutionStarted",),
        ("RandomGenerated", "0"),
        ("InvokeScheduled", "1"),
        ("ExecutionAwaiting", "single", ["1"]),
        ("InvokeStarted", "1", 1),
        ("InvokeCompleted", "1", 1),
        ("ExecutionResumed", ["1"]),
        ("JoinSetCreated", "2"),
        ("InvokeScheduled", "3"),
        ("JoinSetSubmitted", "2", "3"),
        ("InvokeScheduled", "4"),
        ("JoinSetSubmitted", "2", "4"),
        ("ExecutionAwaiting", "any", ["3", "4"]),
        ("InvokeStarted", "4", 1),
        ("InvokeCompleted", "4", 1),
        ("ExecutionResumed", ["4"]),
        ("JoinSetAwaited", "2", "4"),
        ("ExecutionAwaiting", "any", ["3"]),
        ("InvokeStarted", "3", 1),
        ("InvokeRetrying", "3", 1),
        ("InvokeStarted", "3", 2),
        ("InvokeCompleted", "3", 2),
        ("ExecutionResumed", ["3"]),
        ("JoinSetAwaited", "2", "3"),
        ("ExecutionCompleted",),
    ]


def _ids(event: ev.Event) -> list[Any]:
    if isinstance(event, ev.ExecutionAwaiting):
        return [event.kind, event.waiting_on]
    fields = ("join_set_id", "promise_id", "attempt", "failed_attempt", "applied")
    return [getattr(event, field) for field in fields if hasattr(event, field)]


# Closure and draining


def refusal(driver: Driver) -> str:
    """What the run was refused with."""
    assert driver.error.type in ("InvalidRequest", "Drained")
    return driver.error.message


def test_a_set_is_closed_by_the_first_next(cold: bool) -> None:
    """No member after the first next(), and the refused step is never scheduled."""

    @unchecked()
    async def order(ctx: Context) -> str:
        async with ctx.join_set() as joined:
            joined.submit(work, 1)
            await joined.next()
            try:
                joined.submit(work, 2)
            except InvalidRequest as problem:
                return str(problem)
        return "open"

    driver = Driver(order, cold=cold)
    driver.activate()
    driver.activate(done("1", 1))

    assert "closed" in driver.result
    assert names(driver.events).count("InvokeScheduled") == 1
    driver.end()


@pytest.mark.parametrize("members", [0, 1])
def test_next_raises_at_once_where_nothing_is_left(members: int, cold: bool) -> None:
    """An empty or drained set has no result to wait for; waiting would be for ever."""

    @unchecked()
    async def order(ctx: Context) -> None:
        async with ctx.join_set() as joined:
            for n in range(members):
                joined.submit(work, n)
                await joined.next()
            await joined.next()

    driver = Driver(order, cold=cold)
    driver.activate()
    if members:
        driver.activate(done("1", 0))

    assert ("drained" if members else "empty") in refusal(driver)
    driver.end()


def test_iterating_ends_when_the_set_is_drained(cold: bool) -> None:
    """``async for`` goes through all results in completion order, then stops; also over an empty set."""

    @unchecked()
    async def order(ctx: Context) -> list[int]:
        found: list[int] = []
        async with ctx.join_set() as joined, ctx.join_set() as nobody:
            for n in range(3):
                joined.submit(work, n)
            found += [result async for result in joined]
            found += [result async for result in nobody]
        return found

    driver = Driver(order, cold=cold)
    driver.activate()
    driver.activate(done("4", 2), done("2", 0))
    driver.activate(done("3", 1))

    assert driver.result == [2, 0, 1]
    driver.end()


def test_a_failed_member_raises_and_the_rest_still_come(cold: bool) -> None:
    """next() raises the member's error, and may be called again."""

    @unchecked()
    async def order(ctx: Context) -> list[Any]:
        found: list[Any] = []
        async with ctx.join_set() as joined:
            for n in range(3):
                joined.submit(work, n)
            while len(joined):
                try:
                    found.append(await joined.next())
                except StepFailed as problem:
                    found.append(problem.message)
        return found

    driver = Driver(order, cold=cold)
    driver.activate()
    driver.activate(failed("2", "first"))
    driver.activate(done("3", 3), failed("1", "second"))

    assert driver.result == ["first", 3, "second"]
    awaited = [event.result for event in driver.events if isinstance(event, ev.JoinSetAwaited)]
    assert awaited[0] == ev.Result(error=ev.Error(type="Broken", message="first"))
    driver.end()


# Membership


@pytest.mark.parametrize(
    "case", ["twice", "by key", "two sets", "set in a set", "timer", "arguments", "cancelled"]
)
def test_what_cannot_be_a_member_is_refused(case: str, cold: bool) -> None:
    """A promise is in one set, once; members are invokes; a set is not a member."""

    @unchecked()
    async def order(ctx: Context) -> None:
        async with ctx.join_set() as joined, ctx.join_set() as other:
            step = joined.submit(work, 1, key="one")
            submit: Callable[..., Any] = joined.submit
            match case:
                case "twice":
                    joined.submit(step)
                case "by key":
                    joined.submit(work, 1, key="one")
                case "two sets":
                    other.submit(step)
                case "set in a set":
                    submit(other)
                case "timer":
                    joined.submit(ctx.sleep(5))
                case "arguments":
                    submit(ctx.start(work, 2), 3)
                case _:
                    given_up = ctx.start(work, 2)
                    given_up.cancel()
                    joined.submit(given_up)

    driver = Driver(order, cold=cold)
    driver.activate()

    told = {
        "twice": "already a member of this join set",
        "by key": "already a member of this join set",
        "two sets": "already a member of another join set",
        "set in a set": "cannot be a member of a join set",
        "timer": "race others with asyncio.wait",
        "arguments": "takes nothing else",
        "cancelled": "was cancelled",
    }
    assert told[case] in refusal(driver)
    driver.end()


def test_a_promise_started_and_done_before_may_join(cold: bool) -> None:
    """A member that is done already is handed out first."""

    @unchecked()
    async def order(ctx: Context) -> list[int]:
        early = ctx.start(work, 1)
        await asyncio.wait([early])
        async with ctx.join_set() as joined:
            late = joined.submit(work, 2)
            joined.submit(early)
            return [await joined.next(), await joined.next(), await late]

    driver = Driver(order, cold=cold)
    driver.activate()
    driver.activate(done("0", 1))
    driver.activate(done("2", 2))

    assert driver.result == [1, 2, 2]
    driver.end()


def test_leaving_the_block_cancels_what_is_left(cold: bool) -> None:
    """Members that were not taken are abandoned, and whoever executes them may stop."""

    @unchecked()
    async def order(ctx: Context) -> list[Any]:
        async with ctx.join_set() as joined:
            steps = [joined.submit(work, n) for n in range(3)]
            first = await joined.next()
        await ctx.sleep(1)
        return [first, [step.cancelled() for step in steps], len(joined)]

    driver = Driver(order, cold=cold)
    driver.activate()
    driver.activate(done("2", 7))
    if not cold:
        assert list(driver.execution.abandoned) == ["1", "3"]
    driver.activate(done("1", 1), fired("4"), after=1)

    assert driver.result == [7, [True, False, True], 0]
    driver.end()


# Several takers


def test_concurrent_takers_are_served_in_the_order_they_asked(cold: bool) -> None:
    """Each result goes to one taker, first come, first served; one too many is refused."""

    @unchecked()
    async def order(ctx: Context) -> list[Any]:
        async with ctx.join_set() as joined:
            for n in range(2):
                joined.submit(work, n)
            found = await asyncio.gather(joined.next(), joined.next(), joined.next(), return_exceptions=True)
        return [one if isinstance(one, int) else type(one).__name__ for one in found]

    driver = Driver(order, cold=cold)
    driver.activate()
    driver.activate(done("2", 20))
    driver.activate(done("1", 10))

    assert driver.result == [20, 10, "Drained"]
    driver.end()


def test_a_taker_that_gives_up_loses_no_result(cold: bool) -> None:
    """A timeout around next() leaves the set as it was."""

    @unchecked()
    async def order(ctx: Context) -> list[Any]:
        async with ctx.join_set() as joined:
            joined.submit(work, 1)
            try:
                await asyncio.wait_for(joined.next(), 5)
            except TimeoutError:
                return ["late", await joined.next(), len(joined)]
        return ["early"]

    driver = Driver(order, cold=cold)
    driver.activate()
    driver.activate(fired("2"), after=5)
    driver.activate(done("1", 1))

    assert driver.result == ["late", 1, 0]
    driver.end()


def test_a_result_whose_taker_was_just_cancelled_goes_to_the_next_taker(cold: bool) -> None:
    """Handed out and cancelled in the same moment: another taker that waits gets it now."""

    @unchecked()
    async def order(ctx: Context) -> list[Any]:
        async with ctx.join_set() as joined:
            first = joined.submit(work, 1)
            joined.submit(work, 2)

            async def spoil() -> None:
                await first
                taker.cancel()

            spoiler = asyncio.create_task(spoil())
            await asyncio.sleep(0)
            taker = asyncio.create_task(joined.next())
            other = asyncio.create_task(joined.next())
            await asyncio.wait([taker, other], return_when=asyncio.ALL_COMPLETED)
            await spoiler
            return [taker.cancelled(), other.result(), len(joined)]

    driver = Driver(order, cold=cold)
    driver.activate()
    driver.activate(done("1", 10))

    assert driver.result == [True, 10, 1]
    driver.end()


@pytest.mark.parametrize("then", ["leave", "cancel the member", "take"])
def test_a_taker_cancelled_in_the_same_movement_is_no_taker(then: str, cold: bool) -> None:
    """Its place is free at once: for leaving the block, for another next(), for a member that goes."""

    @unchecked()
    async def order(ctx: Context) -> Any:
        async with ctx.join_set() as joined:
            step = joined.submit(work, 1)
            taker = asyncio.create_task(joined.next())
            await asyncio.sleep(0)
            taker.cancel()
            if then == "take":
                return await joined.next()
            if then == "cancel the member":
                step.cancel()
        return "left"

    driver = Driver(order, cold=cold)
    driver.activate()
    if then == "take":
        driver.activate(done("1", 10))

    assert driver.result == (10 if then == "take" else "left")
    driver.end()
