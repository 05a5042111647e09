"""Steps: retries, time limits, heartbeats, queues, transactions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.unit.workers.house import House
from tidewheel import App, Context, Retry, RunCancelled, StepFailed, current_task
from tidewheel.journal import events as ev
from tidewheel.workers.config import WorkerConfig

SLOW = 3600.0


def _app() -> App:
    return App("steps")


def _times(house: House, run_id: str) -> list[float]:
    """When each event was written, in seconds since the first."""
    run = house.run(run_id)
    entries = house.store.rows.entries(run.key, 0, run.last_seq)
    moments = [entry.at.timestamp() for entry in entries if entry.at is not None]
    return [round(moment - moments[0], 3) for moment in moments]


@pytest.mark.parametrize("inline", [True, False])
async def test_a_failed_attempt_is_tried_again_to_the_millisecond(house: House, inline: bool) -> None:
    """Whoever journals the failure arms the retry: the keeper is only the net."""
    app = _app()

    @app.task(retry=Retry(max_attempts=3, initial=2.0, backoff=3.0, jitter=0.0), inline=inline)
    async def flaky() -> int:
        attempt = current_task().attempt
        if attempt < 3:
            raise ConnectionError(f"attempt {attempt}")
        return attempt

    @app.workflow
    async def run_it(ctx: Context) -> int:
        return await ctx.invoke(flaky)

    await house.worker(app)
    handle = await (await house.client()).start(run_it)
    result = await handle.result()

    assert result == 3
    assert _times(house, handle.run_id)[-1] == pytest.approx(8.0, abs=0.01)
    assert house.kinds(handle.run_id)["InvokeRetrying"] == 2


async def test_a_distant_retry_is_the_keepers(house: House) -> None:
    """An hour is not kept in memory, and still it is on time."""
    app = _app()

    @app.task(retry=Retry(max_attempts=2, initial=3600.0, max_delay=3600.0, jitter=0.0))
    async def flaky() -> int:
        if current_task().attempt == 1:
            raise ConnectionError("later")
        return 2

    @app.workflow
    async def run_it(ctx: Context) -> int:
        return await ctx.invoke(flaky)

    await house.worker(app)
    await house.keeper()
    handle = await (await house.client()).start(run_it)
    result = await handle.result()

    assert result == 2
    assert _times(house, handle.run_id)[-1] == pytest.approx(3600.0, abs=0.1)


@pytest.mark.parametrize(
    ("option", "message", "attempts"),
    [
        ({"timeout": 5.0}, "did not finish within 5 s", 2),
        ({"schedule_to_close": 5.0}, "did not finish within 5 s", 1),
        ({"heartbeat": 5.0}, "did not send a heartbeat for 5 s", 2),
    ],
)
@pytest.mark.parametrize("inline", [True, False])
async def test_a_step_that_takes_too_long_fails(
    house: House, option: dict[str, float], message: str, attempts: int, inline: bool
) -> None:
    """Each limit names itself; only the one on the whole step ends the retries."""
    app = _app()

    async def hang() -> None:
        await asyncio.sleep(SLOW)

    app.task(retry=Retry(max_attempts=2, initial=1.0, jitter=0.0), inline=inline, **option)(hang)  # type: ignore[call-overload]  # one option of several

    @app.workflow
    async def run_it(ctx: Context) -> tuple[str, int]:
        try:
            await ctx.invoke(hang)
        except StepFailed as problem:
            return problem.message, problem.attempts
        return "?", 0

    await house.worker(app)
    await house.keeper()
    result = await (await (await house.client()).start(run_it)).result()

    assert result == (f"hang {message}", attempts)


async def test_a_queued_step_that_nobody_begins_in_time_fails(house: House) -> None:
    """The queue has no worker: the keeper ends the wait, not the run."""
    app = _app()

    @app.task(queue="nobody", inline=False, schedule_to_start=30.0)
    async def lonely() -> None: ...

    @app.workflow
    async def run_it(ctx: Context) -> str:
        try:
            await ctx.invoke(lonely)
        except StepFailed as problem:
            return problem.message
        return "?"

    await house.worker(app)
    await house.keeper()
    handle = await (await house.client()).start(run_it)
    result = await handle.result()

    assert result == "lonely was not started within 30 s"
    assert _times(house, handle.run_id)[-1] == pytest.approx(30.0, abs=0.2)


@pytest.mark.parametrize("inline", [True, False])
async def test_what_a_heartbeat_says_reaches_the_next_attempt(house: House, inline: bool) -> None:
    """The details of the last one, however the attempt ended."""
    app = _app()

    @app.task(retry=Retry(max_attempts=2, initial=1.0, jitter=0.0), heartbeat=10.0, inline=inline)
    async def resumable() -> Any:
        task = current_task()
        if task.attempt == 2:
            return task.last_heartbeat
        for page in range(3):
            task.heartbeat({"page": page})
            await asyncio.sleep(8.0)
        raise ConnectionError("lost the connection")

    @app.workflow
    async def run_it(ctx: Context) -> Any:
        return await ctx.invoke(resumable)

    await house.worker(app)
    result = await (await (await house.client()).start(run_it)).result()

    assert result == {"page": 2}


async def test_a_parked_step_waits_for_an_operator(house: House) -> None:
    """on_exhausted="park": no error reaches the code, and the run stays open."""
    app = _app()

    @app.task(retry=Retry(max_attempts=1), on_exhausted="park")
    async def broken() -> None:
        raise ValueError("no")

    @app.workflow
    async def run_it(ctx: Context) -> None:
        await ctx.invoke(broken)

    await house.worker(app)
    await house.keeper()
    handle = await (await house.client()).start(run_it)
    await asyncio.sleep(3600)

    last = house.events(handle.run_id)[-1]
    assert isinstance(last, ev.InvokeRetrying)
    assert last.retry_at is None
    assert house.kinds(handle.run_id)["InvokeStarted"] == 1


async def test_a_long_step_is_journaled_as_started_before_it_ends(house: House) -> None:
    """People see what a run is doing; a quick step does not pay for it."""
    app = _app()

    @app.task
    async def slow() -> None:
        await asyncio.sleep(10)

    @app.workflow
    async def run_it(ctx: Context) -> None:
        await ctx.invoke(slow)

    await house.worker(app)
    handle = await (await house.client()).start(run_it)
    await asyncio.sleep(5)

    assert house.kinds(handle.run_id)["InvokeStarted"] == 1
    await handle.result()
    assert house.kinds(handle.run_id)["InvokeStarted"] == 1


async def test_more_steps_than_there_is_room_for_go_to_the_queue(house: House) -> None:
    """A thousand at once are all executed, some here and some by whoever is free."""
    app = _app()

    @app.task
    async def square(number: int) -> int:
        return number * number

    @app.workflow
    async def fan_out(ctx: Context, count: int) -> int:
        return sum(await asyncio.gather(*(ctx.invoke(square, number) for number in range(count))))

    house.store._debug = False  # checking a journal of thousands after each append takes minutes
    await house.worker(app, WorkerConfig(slots=64))
    handle = await (await house.client()).start(fan_out, 1000)
    result = await handle.result()

    dispatches = [e.dispatch for e in house.events(handle.run_id) if isinstance(e, ev.InvokeScheduled)]
    assert result == sum(number * number for number in range(1000))
    assert {"inline", "queued"} == set(dispatches)


@pytest.mark.parametrize("inline", [True, False])
async def test_a_transactional_step_commits_with_its_result(house: House, inline: bool) -> None:
    """A failed attempt leaves nothing behind; the one that counts leaves its rows."""
    app = _app()

    @app.task(transactional=True, retry=Retry(initial=1.0), inline=inline)
    async def book(amount: int) -> int:
        connection = current_task().connection
        connection.execute("CREATE TABLE IF NOT EXISTS bookings (amount INTEGER)")
        connection.execute("INSERT INTO bookings VALUES (?)", (amount,))
        if current_task().attempt == 1:
            raise ConnectionError("after the insert")
        count: int = connection.execute("SELECT count(*) FROM bookings").fetchone()[0]
        return count

    @app.workflow
    async def run_it(ctx: Context) -> int:
        return await ctx.invoke(book, 5)

    await house.worker(app)
    handle = await (await house.client()).start(run_it)
    result = await handle.result()

    async with house.store.transaction() as transaction:
        rows = transaction.connection.execute("SELECT amount FROM bookings").fetchall()
    assert result == 1
    assert rows == [(5,)]


async def test_an_unserialisable_result_fails_its_step_at_once(house: House) -> None:
    """Trying again would not help, so it is not tried again."""
    app = _app()

    @app.task
    async def bad() -> Any:
        return object()

    @app.workflow
    async def run_it(ctx: Context) -> tuple[str, int]:
        try:
            await ctx.invoke(bad)
        except StepFailed as problem:
            return problem.message, problem.attempts
        return "?", 0

    await house.worker(app)
    message, attempts = await (await (await house.client()).start(run_it)).result()

    assert "result of bad" in message
    assert attempts == 1


async def test_a_cancelled_run_stops_its_step_and_runs_its_clean_up(house: House) -> None:
    """The body is told, the clean-up is durable, the child is cancelled too."""
    app = _app()
    stopped: list[str] = []

    @app.task
    async def endless() -> None:
        try:
            await asyncio.sleep(SLOW)
        finally:
            stopped.append("body")

    @app.task
    async def clean_up() -> None:
        stopped.append("clean-up")

    @app.workflow
    async def child(ctx: Context) -> None:
        await ctx.sleep(SLOW)

    @app.workflow
    async def run_it(ctx: Context) -> None:
        try:
            await asyncio.gather(ctx.invoke(endless), ctx.invoke(child))
        finally:
            await ctx.invoke(clean_up)

    await house.worker(app)
    handle = await (await house.client()).start(run_it)
    await asyncio.sleep(5)
    await handle.cancel("enough")

    with pytest.raises(RunCancelled, match="enough"):
        await handle.result()
    await house.until(lambda: house.run(f"{handle.run_id}:1").ended)
    assert sorted(stopped) == ["body", "clean-up"]
    assert house.run(f"{handle.run_id}:1").status == "CANCELLED"


async def test_a_step_the_code_gave_up_on_is_stopped(house: House) -> None:
    """A timeout in the workflow ends the body, and its retries."""
    app = _app()
    stopped: list[str] = []

    @app.task
    async def endless() -> None:
        try:
            await asyncio.sleep(SLOW)
        finally:
            stopped.append("body")

    @app.workflow
    async def run_it(ctx: Context) -> str:
        try:
            async with asyncio.timeout(10):
                await ctx.invoke(endless)
        except TimeoutError:
            await ctx.sleep(100)
            return "gave up"
        return "?"

    await house.worker(app)
    await house.keeper()
    handle = await (await house.client()).start(run_it)
    result = await handle.result()

    assert result == "gave up"
    assert stopped == ["body"]
    assert _times(house, handle.run_id)[-1] == pytest.approx(110.0, abs=0.1)


async def test_a_child_run_that_takes_too_long_is_cancelled(house: House) -> None:
    """timeout= of an invoke holds for child runs too, though no worker could break one off."""
    app = _app()

    @app.workflow
    async def child(ctx: Context) -> None:
        await ctx.sleep(SLOW)

    @app.workflow
    async def run_it(ctx: Context) -> tuple[str, str]:
        try:
            await ctx.invoke(child, timeout=5)
        except StepFailed as problem:
            return problem.error_type, problem.message
        return "?", "?"

    await house.worker(app)
    handle = await (await house.client()).start(run_it)
    result = await handle.result()

    assert result == ("TimeoutError", "child did not finish within 5 s")
    await house.until(lambda: house.run(f"{handle.run_id}:0").status == "CANCELLED")


async def test_a_task_of_another_queue_is_left_to_its_workers(house: House) -> None:
    """The function is here too, but its queue says who has what it needs."""
    app = _app()

    @app.task(queue="gpu")
    async def render() -> str:
        return current_task().idempotency_key

    @app.workflow
    async def run_it(ctx: Context) -> str:
        return await ctx.invoke(render)

    await house.worker(app)
    handle = await (await house.client()).start(run_it)
    await asyncio.sleep(60)
    assert not house.run(handle.run_id).ended
    await house.worker(app, WorkerConfig(queues=("gpu",)))
    await house.keeper()

    assert await handle.result() == f"{handle.run_id}:0"


@pytest.mark.parametrize("problem", [SystemExit(3), KeyboardInterrupt()])
@pytest.mark.parametrize("plain", [True, False])
async def test_a_step_that_exits_fails_and_the_worker_goes_on(
    house: House, problem: BaseException, plain: bool
) -> None:
    """asyncio would end the whole process: here it is an error like any other."""
    app = _app()

    def quits() -> None:
        raise problem

    async def quits_async() -> None:
        raise problem

    body = app.task(retry=Retry(max_attempts=1))(quits if plain else quits_async)

    @app.workflow
    async def run_it(ctx: Context) -> str:
        try:
            await ctx.invoke(body)
        except StepFailed as failed:
            return failed.error_type
        return "?"

    await house.worker(app)
    handle = await (await house.client()).start(run_it)

    assert await handle.result() == type(problem).__name__
