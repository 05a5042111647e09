"""``Environment``: workflows in memory, on a clock that skips the waiting."""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
from typing import Any

import pytest

from tidewheel import App, Context, InvalidRequest, NotFound, Retry, RunFailed, SignalRejected, StepFailed
from tidewheel import current_task as current
from tidewheel.journal import events as ev
from tidewheel.testing import Environment, Stuck

app = App("environment")


class Declined(Exception):
    """A business error that workflows handle."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code


@app.task(retry=Retry(max_attempts=3, initial=10, backoff=2, jitter=0), timeout=30)
async def charge(amount: int) -> str:
    """A task."""
    return f"charged {amount}"


@app.task(retry=Retry(max_attempts=5, non_retryable=[ValueError]), raises=[Declined])
def decide(amount: int) -> str:
    """A task with errors of its own."""
    raise Declined(amount, "too much")


@app.task(retry=Retry(max_attempts=1), on_exhausted="park")
async def fragile() -> None:
    """A task that is parked when it fails."""
    raise OSError("broken")


@app.task
async def opaque() -> object:
    """A task whose result cannot be stored."""
    return object()


@app.workflow
async def pay(ctx: Context, amount: int) -> str:
    """One step."""
    return await ctx.invoke(charge, amount)


@app.workflow
async def nap(ctx: Context, seconds: float) -> list[str]:
    """A long sleep."""
    began = ctx.now()
    await ctx.sleep(seconds)
    return [began.isoformat(), ctx.now().isoformat()]


# The clock


async def test_the_clock_skips_what_nobody_waits_through() -> None:
    """A year passes as fast as things can happen, and the code sees it pass."""
    async with Environment(app, start=dt.datetime(2030, 1, 1, tzinfo=dt.UTC)) as env:
        handle = await env.client.start(nap, 365 * 86400)

        assert await handle.result() == ["2030-01-01T00:00:00+00:00", "2031-01-01T00:00:00+00:00"]
        assert env.now == dt.datetime(2031, 1, 1, tzinfo=dt.UTC)


async def test_time_passes_only_while_something_is_awaited() -> None:
    """settle lets happen what needs no time; sleep lets so much time pass and no more."""
    async with Environment(app) as env:
        handle = await env.client.start(nap, 100)
        began = env.now
        await env.settle()
        assert env.now == began
        await env.sleep(99)
        assert await handle.status() == "RUNNING"
        await env.sleep(dt.timedelta(seconds=1))
        assert await handle.status() == "COMPLETED"
        assert env.now == began + dt.timedelta(seconds=100)


async def test_a_result_may_be_awaited_for_a_limited_time() -> None:
    """result(timeout=) is in virtual seconds and leaves the run alone."""
    async with Environment(app) as env:
        handle = await env.client.start(nap, 100)
        with pytest.raises(TimeoutError, match="did not end within 60 virtual seconds"):
            await handle.result(timeout=60)

        assert len(await handle.result(timeout=60)) == 2


# Fakes


async def test_a_fake_may_be_a_function_a_result_or_an_error() -> None:
    """The real task is not called; its types and its retries still count."""
    async with Environment(app) as env:
        env.fake(charge, lambda amount: f"faked {amount}")
        assert await (await env.client.start(pay, 1)).result() == "faked 1"

        env.fake(charge, returns="always")
        assert await (await env.client.start(pay, 2)).result() == "always"

        env.fake(charge, raises=ConnectionError("down"))
        with pytest.raises(RunFailed, match="down") as failed:
            await (await env.client.start(pay, 3)).result()
        assert failed.value.error.attempts == 3


async def test_a_fake_may_take_virtual_time() -> None:
    """With takes= alone the real function is called, and its result comes later."""
    async with Environment(app) as env:
        env.fake(charge, takes=20)
        began = env.now

        assert await (await env.client.start(pay, 1)).result() == "charged 1"
        assert env.now - began == dt.timedelta(seconds=20)


async def test_what_cannot_be_faked_is_refused() -> None:
    """Only tasks, and only one way at a time."""
    async with Environment(app) as env:
        with pytest.raises(InvalidRequest, match="is not a task"):
            env.fake(pay, returns=1)
        with pytest.raises(InvalidRequest, match="not several"):
            env.fake(charge, lambda _amount: "", returns="x")


# Attempts


async def test_retries_back_off_in_virtual_time() -> None:
    """Attempt 2 comes after 10 s, attempt 3 after 20 more, as the policy says."""
    attempts: list[dt.datetime] = []
    async with Environment(app) as env:

        def flaky(_amount: int) -> str:
            attempts.append(env.now)
            if len(attempts) < 3:
                raise ConnectionError("try again")
            return "at last"

        env.fake(charge, flaky)
        handle = await env.client.start(pay, 1)

        assert await handle.result() == "at last"
        gaps = [(late - early).total_seconds() for early, late in itertools.pairwise(attempts)]
        assert gaps == [10, 20]
        retrying = [e.event for e in await handle.journal() if isinstance(e.event, ev.InvokeRetrying)]
        assert [one.failed_attempt for one in retrying] == [1, 2]


async def test_what_is_not_retryable_is_not_retried() -> None:
    """Classes in non_retryable end the step at once."""
    async with Environment(app) as env:
        env.fake(decide, raises=ValueError("bad input"))
        handle = await env.client.start(deciding, 1)

        assert await handle.result() == "StepFailed: ValueError after 1"


@app.workflow
async def deciding(ctx: Context, amount: int) -> str:
    """Handle a declared error and others."""
    try:
        return await ctx.invoke(decide, amount)
    except Declined as problem:
        await ctx.sleep(1)
        return f"Declined: {problem.code} {problem.args}"
    except StepFailed as problem:
        return f"StepFailed: {problem.error_type} after {problem.attempts}"


async def test_declared_errors_arrive_as_themselves_live_and_on_replay() -> None:
    """raises= classes keep their arguments, also when the run is replayed from its journal."""
    async with Environment(app) as env:
        handle = await env.client.start(deciding, 7)
        await env.settle()
        await env.sleep(60)
        env.crash()

        assert await handle.result() == "Declined: 7 (7, 'too much')"


async def test_an_attempt_that_lasts_too_long_times_out() -> None:
    """timeout= is start to close of one attempt, in virtual time."""
    async with Environment(app) as env:
        env.fake(charge, takes=31)
        began = env.now
        handle = await env.client.start(pay, 1)

        with pytest.raises(RunFailed, match="did not finish within 30 s"):
            await handle.result()
        assert (env.now - began).total_seconds() == 3 * 30 + 10 + 20


async def test_a_parked_step_waits_for_an_operator() -> None:
    """on_exhausted="park": the run is not failed, and Stuck says why nothing happens."""
    async with Environment(app) as env:
        handle = await env.client.start(fragile_run)
        with pytest.raises(Stuck, match="step 'fragile' is parked: its attempts are spent"):
            await handle.result()

        assert await handle.status() == "RUNNING"
        last = next(
            e.event for e in reversed(await handle.journal()) if isinstance(e.event, ev.InvokeRetrying)
        )
        assert last.retry_at is None


@app.workflow
async def fragile_run(ctx: Context) -> None:
    """Invoke the fragile task."""
    await ctx.invoke(fragile)


async def test_a_result_that_cannot_be_stored_fails_the_step_once() -> None:
    """It would fail again every time: the step ends, and says which value."""
    async with Environment(app) as env:
        handle = await env.client.start(opaque_run)

        with pytest.raises(RunFailed, match="result of opaque"):
            await handle.result()
        assert [type(e.event).__name__ for e in await handle.journal()].count("InvokeStarted") == 1


@app.workflow
async def opaque_run(ctx: Context) -> None:
    """Invoke the opaque task."""
    await ctx.invoke(opaque)


async def test_a_task_that_cancels_itself_has_failed() -> None:
    """CancelledError out of a task's own body is an error of the task, not of the run."""
    async with Environment(app) as env:
        env.fake(charge, raises=asyncio.CancelledError())
        handle = await env.client.start(pay, 1)

        with pytest.raises(RunFailed, match="CancelledError"):
            await handle.result()


async def test_a_task_knows_what_it_is() -> None:
    """current_task(): run, attempt, a key that stays the same, and the last attempt's heartbeat."""
    seen: list[tuple[str, int, str, Any]] = []

    def beats(_amount: int) -> str:
        me = current()
        seen.append((me.run_id, me.attempt, me.idempotency_key, me.last_heartbeat))
        me.heartbeat({"done": me.attempt * 10})
        if me.attempt < 3:
            raise ConnectionError("lost")
        return "done"

    async with Environment(app) as env:
        env.fake(charge, beats)
        handle = await env.client.start(pay, 1, run_id="r")
        await handle.result()

    assert seen == [
        ("r", 1, "r:0", None),
        ("r", 2, "r:0", {"done": 10}),
        ("r", 3, "r:0", {"done": 20}),
    ]
    with pytest.raises(InvalidRequest, match="inside a task only"):
        current()


# Handles


async def test_starting_twice_is_starting_once() -> None:
    """The same id or key gives the existing run; another input is told by ``mismatch``."""
    async with Environment(app) as env:
        first = await env.client.start(pay, 1, run_id="r", idempotency_key="k")
        again = await env.client.start(pay, 1, run_id="r")
        by_key = await env.client.start("pay", 1, idempotency_key="k")
        other = await env.client.start(pay, 2, idempotency_key="k")

        assert [h.run_id for h in (first, again, by_key, other)] == ["r"] * 4
        assert [h.mismatch for h in (first, again, by_key, other)] == [False, False, False, True]
        assert len(env.engine.runs) == 1


@pytest.mark.parametrize("run_id", ["", "a b", "a:1", "x" * 201])
async def test_a_run_id_that_cannot_be_is_refused(run_id: str) -> None:
    """An empty or malformed id is refused at the door, never replaced by a made-up one."""
    async with Environment(app) as env:
        with pytest.raises(InvalidRequest):
            await env.client.start(pay, 1, run_id=run_id)
        assert env.engine.runs == {}


async def test_what_is_not_there_is_not_found() -> None:
    """Unknown runs and workflows are named, with what there is."""
    async with Environment(app) as env:
        with pytest.raises(NotFound, match="no run 'nobody'"):
            env.client.handle("nobody")
        with pytest.raises(NotFound, match="no workflow 'nothing'"):
            await env.client.start("nothing")


@app.workflow
async def remembering(ctx: Context) -> str:
    """State, a signal and a promise."""
    ctx.state["a"] = 1
    ctx.state["b"] = {"n": [1]}
    del ctx.state["a"]
    ctx.state["c"] = await ctx.signal("go")
    return str(await ctx.promise("answer"))


async def test_a_handle_shows_status_state_and_events() -> None:
    """State is what the code remembered; events are the public ones; status the contract's words."""
    async with Environment(app) as env:
        handle = await env.client.start(remembering)
        await env.settle()
        assert await handle.status() == "RUNNING"
        assert await handle.state() == {"b": {"n": [1]}}
        env.after(30, handle.signal, "go", 5)
        env.after(60, handle.resolve, "answer", 42)

        assert await handle.result() == "42"
        assert await handle.state() == {"b": {"n": [1]}, "c": 5}
        assert await handle.status() == "COMPLETED"
        kinds = [event.event_type for event in await handle.events()]
        assert (kinds[0], kinds[-1]) == ("RunStarted", "RunCompleted")
        with pytest.raises(SignalRejected, match="has ended"):
            await handle.signal("go")
        await handle.cancel("too late")
        assert await handle.status() == "COMPLETED"


@pytest.mark.parametrize(
    ("sent", "why"),
    [([], "waits for signal 'go'"), (["go"], "waits for promise 'answer'")],
)
async def test_a_run_that_nothing_will_wake_is_stuck(sent: list[str], why: str) -> None:
    """The message says what is missing, rather than hanging the test."""
    async with Environment(app) as env:
        handle = await env.client.start(remembering)
        for name in sent:
            await handle.signal(name)

        with pytest.raises(Stuck, match=why):
            await handle.result()


# Children


@app.workflow
async def leaf(ctx: Context, n: int) -> str:
    """A child with a step of its own."""
    await ctx.sleep(1)
    return await ctx.invoke(charge, n)


@app.workflow
async def tree(ctx: Context) -> list[str]:
    """A step, then two children, one of which has a child."""
    first = await ctx.invoke(charge, 0)
    return [first, *await asyncio.gather(ctx.invoke(leaf, 1), ctx.invoke(branch, 2))]


@app.workflow
async def branch(ctx: Context, n: int) -> str:
    """A child that has a child."""
    return await ctx.invoke(leaf, n)


async def test_a_childs_id_is_its_promise_and_its_commands_continue_the_path() -> None:
    """order-42:1 is the run of promise 1; its own commands are 1.0, 1.1."""
    async with Environment(app) as env:
        handle = await env.client.start(tree, run_id="order-42")

        assert await handle.result() == ["charged 0", "charged 1", "charged 2"]
        assert sorted(env.engine.runs) == ["order-42", "order-42:1", "order-42:2", "order-42:2.0"]
        journal = await env.client.handle("order-42:1").journal()
        started = journal[0].event
        assert isinstance(started, ev.ExecutionStarted)
        assert started.parent_id == "order-42"
        paths = [
            e.event.promise_id for e in journal if isinstance(e.event, ev.TimerScheduled | ev.InvokeScheduled)
        ]
        assert paths == ["1.0", "1.1"]
        deep = await env.client.handle("order-42:2.0").journal()
        assert [e.event.promise_id for e in deep if isinstance(e.event, ev.InvokeScheduled)] == ["2.0.1"]


# What goes wrong around a run


stray = App("stray")


@stray.task(retry=Retry(max_attempts=5), on_exhausted="park")
async def stray_task() -> None:
    """A task of an app that nobody includes."""


@stray.workflow
async def stray_run(ctx: Context) -> None:
    """A workflow of an app that nobody includes."""


@app.workflow
async def straying(ctx: Context, kind: str) -> str:
    """Invoke what the app lacks."""
    try:
        await (ctx.invoke(stray_task) if kind == "task" else ctx.invoke(stray_run))
    except StepFailed as problem:
        return f"{problem.error_type} {problem.retryable}: {problem.message}"
    return "found"


@pytest.mark.parametrize(("kind", "name"), [("task", "stray_task"), ("workflow", "stray_run")])
async def test_invoking_what_the_app_does_not_include_fails_the_step(kind: str, name: str) -> None:
    """The workflow gets StepFailed, which says what is missing where, and what to write."""
    async with Environment(app) as env:
        told = await (await env.client.start(straying, kind)).result()

        assert told.startswith(f"NotFound False: app 'environment' has no {kind} '{name}'")
        assert "app.include(...)" in told


async def test_a_run_starts_inside_the_block_only() -> None:
    """Before and after the ``async with`` block there is nothing to run it, and the error says so."""
    env = Environment(app)
    with pytest.raises(InvalidRequest, match=r"async with Environment\(app\) as env:"):
        await env.client.start(pay, 1)
    async with env:
        handle = await env.client.start(nap, 10)
    with pytest.raises(InvalidRequest, match="async with"):
        await env.client.start(pay, 1)
    with pytest.raises(InvalidRequest, match="async with"):
        await handle.result()

    assert await handle.status() == "RUNNING"
