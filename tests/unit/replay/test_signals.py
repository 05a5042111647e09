"""Signals: two events, first in first out, bound to the oldest waiter, never shown too early."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.unit.replay.journals import Driver, delivered, done, fired, names, unchecked
from tidewheel import App, Context
from tidewheel.journal import events as ev

app = App("signals")


@app.task
async def create_order(item: int = 0) -> str:
    """A task."""
    return "order"


@unchecked()
async def approval(ctx: Context) -> Any:
    """Seed 000's example: a step, then a signal."""
    await ctx.invoke(create_order)
    return await ctx.signal("user_approval")


def received(driver: Driver) -> list[tuple[str, int, Any]]:
    """Who got which delivery: path, delivery id, payload."""
    return [
        (event.promise_id, event.delivery_id, event.payload)
        for event in driver.events
        if isinstance(event, ev.SignalReceived)
    ]


# Seed 000's journals


def test_a_buffered_signal_is_received_without_blocking(cold: bool) -> None:
    """It arrived before the code asked: SignalReceived stands where the code asked, with no wait."""
    driver = Driver(approval, cold=cold)
    driver.activate()
    driver.activate(done("0", "order"), delivered("user_approval", {"approved": True}))

    assert names(driver.events) == [
        "ExecutionStarted", "InvokeScheduled", "ExecutionAwaiting", "InvokeStarted", "InvokeCompleted",
        "SignalDelivered", "ExecutionResumed", "SignalReceived", "ExecutionCompleted",
    ]  # fmt: skip
    assert received(driver) == [("1", 1, {"approved": True})]
    assert driver.result == {"approved": True}
    driver.end()


def test_a_blocking_signal_is_received_right_before_the_resume(cold: bool) -> None:
    """It arrives after the code asked: SignalReceived stands between the delivery and the resume."""
    driver = Driver(approval, cold=cold)
    driver.activate()
    driver.activate(done("0", "order"))
    assert driver.last == ev.ExecutionAwaiting(
        waiting_on=["1"],
        kind="signal",
        signal_name="user_approval",
        signal_promise_id="1",
        signals=[ev.SignalWait(promise_id="1", signal_name="user_approval", n=0)],
    )
    driver.activate(delivered("user_approval", {"approved": True}), after=3600)

    assert names(driver.events)[5:] == [
        "ExecutionResumed", "ExecutionAwaiting", "SignalDelivered", "SignalReceived", "ExecutionResumed",
        "ExecutionCompleted",
    ]  # fmt: skip
    assert driver.result == {"approved": True}
    driver.end()


# Order


def test_signals_of_one_name_are_consumed_in_order(cold: bool) -> None:
    """First delivered, first received; other names do not interfere."""

    @unchecked()
    async def order(ctx: Context) -> list[Any]:
        return [await ctx.signal(name) for name in ("red", "blue", "red", "red")]

    driver = Driver(order, cold=cold)
    driver.happens(delivered("red", "r1"), delivered("red", "r2", 2), delivered("blue", "b1"))
    driver.activate()
    driver.activate(delivered("red", "r3", 3))

    assert driver.result == ["r1", "b1", "r2", "r3"]
    driver.end()


def test_the_oldest_waiter_gets_the_oldest_delivery(cold: bool) -> None:
    """Two branches wait for one name: the one that asked first is served first."""

    @unchecked()
    async def order(ctx: Context) -> list[Any]:
        return list(await asyncio.gather(ctx.signal("go"), ctx.signal("go")))

    driver = Driver(order, cold=cold)
    driver.activate()
    driver.activate(delivered("go", "first"), delivered("go", "second", 2))

    assert received(driver) == [("0", 1, "first"), ("1", 2, "second")]
    assert driver.result == ["first", "second"]
    driver.end()


def test_a_new_waiter_does_not_overtake_an_older_one(cold: bool) -> None:
    """A delivery that is journaled but not yet shown belongs to the branch that waited first."""

    @unchecked()
    async def order(ctx: Context) -> list[Any]:
        early = ctx.signal("go")
        await ctx.invoke(create_order)
        late = ctx.signal("go")
        return [await early, await late]

    driver = Driver(order, cold=cold)
    driver.activate()
    driver.activate(done("1", "x"), delivered("go", "first"))
    driver.activate(delivered("go", "second", 2))

    assert driver.result == ["first", "second"]
    driver.end()


def test_a_signal_raced_with_a_timer_is_decided_by_the_journal(cold: bool) -> None:
    """Whichever fact is first wins, and the other is left for whoever asks next."""

    @unchecked()
    async def order(ctx: Context) -> list[Any]:
        found: list[Any] = []
        for _ in range(2):
            try:
                found.append(await ctx.signal("go", timeout=5))
            except TimeoutError as problem:
                found.append(str(problem))
        return found

    timer_first = Driver(order, cold=cold)
    timer_first.activate()
    timer_first.activate(fired("1"), delivered("go", "late"), after=5)
    assert timer_first.result == ["no signal 'go' within 5 s", "late"]
    timer_first.end()

    signal_first = Driver(order, cold=cold)
    signal_first.activate()
    signal_first.activate(delivered("go", "early"), fired("1"), after=5)
    signal_first.activate(delivered("go", "second", 2))
    assert signal_first.result == ["early", "second"]
    signal_first.end()


def test_a_signal_raced_in_wait_is_accepted_on_recovery(cold: bool) -> None:
    """asyncio.wait over a signal and a timer replays to the same winner."""

    @unchecked()
    async def order(ctx: Context) -> list[Any]:
        go, nap = ctx.signal("go"), ctx.sleep(10)
        finished, _pending = await asyncio.wait([go, nap], return_when=asyncio.FIRST_COMPLETED)
        await ctx.invoke(create_order)
        return [go in finished, nap in finished, go.done()]

    driver = Driver(order, cold=cold)
    driver.activate()
    driver.activate(delivered("go"))
    driver.activate(fired("1"), done("2", "x"), after=10)

    assert driver.result == [True, False, True]
    driver.end()


def test_a_later_signal_is_never_shown_to_an_earlier_check(cold: bool) -> None:
    """A check that found nothing finds nothing on every replay, whatever arrived since."""
    checks: list[bool] = []

    @unchecked()
    async def order(ctx: Context) -> list[Any]:
        go = ctx.signal("go")
        checks.append(go.done())
        before = go.done()
        await ctx.invoke(create_order)
        return [before, go.done(), await go]

    driver = Driver(order, cold=cold)
    driver.activate()
    driver.activate(done("1", "x"), delivered("go", "late"))

    assert driver.result == [False, False, "late"]
    assert checks == [False] * len(checks)
    driver.end()


def test_a_signal_before_the_first_activation_is_buffered(cold: bool) -> None:
    """The first activation shows the input only; the code takes the signal where it asks for it."""

    @unchecked()
    async def order(ctx: Context) -> list[Any]:
        go = ctx.signal("go")
        return [go.done(), await go]

    driver = Driver(order, cold=cold)
    driver.activate(delivered("go", "early"))

    assert driver.result == [True, "early"]
    driver.end()


# Waits that end without a signal


def test_a_wait_that_timed_out_is_not_open_any_more(cold: bool) -> None:
    """A suspension lists the waits that are open, so a loop of timeouts does not grow its journal."""

    @unchecked()
    async def order(ctx: Context) -> str:
        for _ in range(5):
            try:
                return str(await ctx.signal("go", timeout=1))
            except TimeoutError:
                continue
        return "never"

    driver = Driver(order, cold=cold)
    driver.activate()
    for _ in range(3):
        (path,) = [path for path in driver.waits_on if path != driver.waiting.signals[-1].promise_id]
        driver.activate(fired(path), after=1)
        assert len(driver.waiting.signals) == 1
    driver.activate(delivered("go", "there"))

    assert driver.result == "there"
    driver.end()


def test_abandoned_waits_without_a_trace_do_not_shift_later_ones(cold: bool) -> None:
    """A wait that began and ended within one movement is in no journal, yet it counts."""

    @unchecked()
    async def order(ctx: Context) -> list[Any]:
        found: list[Any] = []
        for n in range(3):
            try:
                async with asyncio.timeout(0):
                    found.append(await ctx.signal("red"))
            except TimeoutError:
                found.append("nothing")
            found.append(await ctx.signal("blue"))
            found.append(await ctx.invoke(create_order, n))
        return found

    driver = Driver(order, cold=cold)
    driver.activate()
    for n in range(3):
        driver.activate(delivered("blue", n, n + 1))
        driver.activate(done(driver.waits_on[0], f"o{n}"))

    assert driver.result == ["nothing", 0, "o0", "nothing", 1, "o1", "nothing", 2, "o2"]
    driver.end()


def test_an_abandoned_wait_does_not_consume_the_next_delivery(cold: bool) -> None:
    """A wait that a timeout cancelled is passed over; the delivery keeps for a later one."""

    @unchecked()
    async def order(ctx: Context) -> list[Any]:
        try:
            async with asyncio.timeout(1):
                await ctx.signal("go")
        except TimeoutError:
            pass
        await ctx.invoke(create_order)
        return [await ctx.signal("go")]

    driver = Driver(order, cold=cold)
    driver.activate()
    driver.activate(fired("0"), after=1)
    driver.activate(delivered("go", "kept"))
    driver.activate(done("2", "x"))

    assert driver.result == ["kept"]
    driver.end()


# Across continue-as-new


@unchecked()
async def counting(ctx: Context, round_: int) -> Any:
    """Take one signal a round, for three rounds."""
    got = await ctx.signal("tick")
    ctx.state[f"round-{round_}"] = got
    if round_ < 2:
        ctx.continue_as_new(round_ + 1)
    return dict(ctx.state)


def test_unconsumed_signals_and_state_are_carried_over(cold: bool) -> None:
    """Nothing that was delivered is lost, and none of it is seen twice."""
    driver = Driver(counting, 0, cold=cold)
    driver.activate(delivered("tick", "a"), delivered("tick", "b", 2), delivered("tock", "x"))
    assert names(driver.events)[-4:] == [
        "ExecutionContinued", "ExecutionStarted", "SignalDelivered", "SignalDelivered"
    ]  # fmt: skip
    driver.activate()
    driver.activate()
    driver.activate(delivered("tick", "c", 3))

    assert driver.result == {"round-0": "a", "round-1": "b", "round-2": "c"}
    assert [payload for _path, _id, payload in received(driver)] == ["a", "b", "c"]
    driver.end()


def test_positions_go_on_and_commands_restart_after_continuing(cold: bool) -> None:
    """Paths stay unique over the whole run; CommandIds and keys count from the start again."""

    @unchecked()
    async def order(ctx: Context, left: int) -> str:
        await ctx.invoke(create_order, left)
        await ctx.invoke(create_order, left, key="again")
        if left:
            ctx.continue_as_new(left - 1)
        return "done"

    driver = Driver(order, 1, cold=cold)
    driver.activate()
    driver.activate(done("0", "x"))
    driver.activate(done("1", "x"))
    driver.activate()
    driver.activate(done("2", "x"))
    driver.activate(done("3", "x"))

    scheduled = [event for event in driver.events if isinstance(event, ev.InvokeScheduled)]
    assert [event.promise_id for event in scheduled] == ["0", "1", "2", "3"]
    assert [event.n for event in scheduled if event.key != "again"] == [0, 0]
    assert driver.result == "done"
    driver.end()


@unchecked()
async def rolling(ctx: Context, round_: int) -> str:
    """Continue once a step is done; a cancel makes it continue too."""
    try:
        await ctx.invoke(create_order, round_)
    except asyncio.CancelledError:
        ctx.continue_as_new(100)
    if round_ < 100:
        ctx.continue_as_new(round_ + 1)
    return "carried on"


def test_a_pending_cancel_is_carried_over(cold: bool) -> None:
    """A cancel that the segment never showed reaches the next one, and no code of it runs."""
    driver = Driver(rolling, 0, cold=cold)
    driver.activate()
    driver.activate(done("0", "x"), ev.CancelRequested(reason="enough"))
    assert names(driver.events)[-3:] == ["ExecutionContinued", "ExecutionStarted", "CancelRequested"]
    driver.activate()

    assert driver.last == ev.ExecutionCancelled(reason="enough")
    driver.end()


def test_a_cancel_shown_before_continuing_is_spent(cold: bool) -> None:
    """The code saw it and chose to go on: the next segment is not told again."""
    driver = Driver(rolling, 0, cold=cold)
    driver.activate()
    driver.activate(ev.CancelRequested(reason="enough"))
    assert names(driver.events)[-2:] == ["ExecutionContinued", "ExecutionStarted"]
    driver.activate()
    driver.activate(done("1", "x"))

    assert driver.result == "carried on"
    driver.end()
