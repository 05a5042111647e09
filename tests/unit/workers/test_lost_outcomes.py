"""Outcomes: what a step came to is written as it was, once, and when it is due."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import pytest

from tests.unit.workers.house import House
from tidewheel import App, Context, Retry, StepFailed, current_task
from tidewheel.journal import events as ev
from tidewheel.store.append import Append, Appended, Park, Unpark
from tidewheel.store.errors import CommitUnknown, StoreUnavailable
from tidewheel.store.memory import MemoryTransaction
from tidewheel.store.records import RunRef

HOUR = 3600.0


async def test_a_distant_retry_is_not_hastened_by_signals(house: House) -> None:
    """Whatever wakes the run before, the next attempt begins when the failed one said."""
    app = App("early")
    begun: list[float] = []

    @app.task(retry=Retry(max_attempts=5, initial=HOUR, max_delay=HOUR, jitter=0.0))
    async def flaky() -> int:
        begun.append(asyncio.get_running_loop().time())
        if len(begun) == 1:
            raise ConnectionError("later")
        return 1

    @app.workflow
    async def listens(ctx: Context) -> int:
        step = ctx.start(flaky)
        for _ in range(3):
            await ctx.signal("go")
        return await step

    await house.worker(app)
    await house.keeper()
    handle = await (await house.client()).start(listens)
    for number in range(3):
        await asyncio.sleep(5)
        await handle.signal("go", number)

    assert await handle.result(timeout=2 * HOUR) == 1
    assert begun == pytest.approx([0, HOUR], abs=2)


async def test_a_step_scheduled_by_a_commit_without_reply_has_its_only_attempt(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has begun it, so it is begun: its attempt is not counted as lost."""
    app = App("lost-reply")
    executed: list[str] = []

    @app.task(retry=Retry(max_attempts=1))
    async def once() -> int:
        executed.append("once")
        return 1

    @app.workflow
    async def asks(ctx: Context) -> str:
        try:
            return f"ok {await ctx.invoke(once)}"
        except StepFailed as problem:
            return f"failed: {problem}"

    await house.worker(app)
    await house.keeper()
    append, lost = house.store.append, 0

    async def lossy(batch: Sequence[Append]) -> list[Appended]:
        nonlocal lost
        answers = await append(batch)
        if not lost and any(_schedules(one) for one in batch):
            lost += 1
            raise CommitUnknown("the reply was lost")
        return answers

    monkeypatch.setattr(house.store, "append", lossy)
    handle = await (await house.client()).start(asks)

    assert await handle.result(timeout=HOUR) == "ok 1"
    assert executed == ["once"]
    assert lost == 1


async def test_the_result_of_a_step_is_kept_though_its_run_was_parked_meanwhile(house: House) -> None:
    """Parked code is shown nothing, but what was executed is not executed again."""
    app = App("parked")
    begun: list[float] = []

    @app.task
    async def pays() -> int:
        begun.append(asyncio.get_running_loop().time())
        await asyncio.sleep(10)
        return 1

    @app.workflow
    async def asks(ctx: Context) -> int:
        return await ctx.invoke(pays)

    await house.worker(app)
    await house.keeper()
    handle = await (await house.client()).start(asks)
    run = RunRef("default", handle.run_id)
    await asyncio.sleep(5)
    await house.store.append([Append(run=run, mark=Park(kind="quarantine", reason="an operator"))])
    await house.hint(handle.run_id)
    await asyncio.sleep(20)

    assert house.kinds(handle.run_id)["InvokeCompleted"] == 1
    assert house.run(handle.run_id).parked == "quarantine"
    await house.store.append([Append(run=run, mark=Unpark())])
    assert await handle.result(timeout=HOUR) == 1
    assert len(begun) == 1


async def test_a_transactional_step_waits_for_a_store_that_is_away(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its body has not been called: no attempt is spent."""
    app = App("transactional")
    executed: list[int] = []

    @app.task(transactional=True, retry=Retry(max_attempts=1))
    async def pays() -> int:
        executed.append(current_task().attempt)
        return 1

    @app.workflow
    async def asks(ctx: Context) -> str:
        try:
            return f"ok {await ctx.invoke(pays)}"
        except StepFailed as problem:
            return f"failed: {problem}"

    await house.worker(app)
    await house.keeper()
    transaction, refusals = house.store.transaction, 5

    @contextlib.asynccontextmanager
    async def locked(*, is_async: bool) -> AsyncIterator[MemoryTransaction]:
        nonlocal refusals
        if refusals:
            refusals -= 1
            raise StoreUnavailable("it is locked by another process; nothing was written")
        async with transaction(is_async=is_async) as begun:
            yield begun

    monkeypatch.setattr(house.store, "transaction", locked)
    handle = await (await house.client()).start(asks)

    assert await handle.result(timeout=HOUR) == "ok 1"
    assert executed == [1]
    assert refusals == 0


async def test_heartbeats_in_a_row_are_written_as_few_and_the_last_is_among_them(house: House) -> None:
    """Those that come while one is being written become one: a tight loop does not flood the store."""
    app = App("beats")

    @app.task(inline=False, heartbeat=60)
    async def beats() -> int:
        for number in range(1_000):
            current_task().heartbeat(number)
        await asyncio.sleep(5)
        return 1

    @app.workflow
    async def asks(ctx: Context) -> int:
        return await ctx.invoke(beats)

    worker = await house.worker(app)
    await house.keeper()
    handle = await (await house.client()).start(asks)
    await asyncio.sleep(2)
    (step,) = house.store.rows.steps(house.run(handle.run_id).key)

    assert step.beat == b"999"
    assert worker.services.writer.appends < 10
    assert await handle.result() == 1


def _schedules(append: Append) -> bool:
    moves = append.moves
    return moves is not None and any(isinstance(event, ev.InvokeScheduled) for event in moves.events)


async def test_a_transactional_step_does_not_wait_beyond_its_limit(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that takes results but begins no transaction holds a step up no longer than it may take."""
    app = App("bounded")

    @app.task(transactional=True, timeout=10, retry=Retry(max_attempts=1))
    async def book() -> None: ...

    @app.workflow
    async def run_it(ctx: Context) -> str:
        try:
            await ctx.invoke(book)
        except StepFailed as problem:
            return problem.message
        return "?"

    def locked(*, is_async: bool) -> contextlib.AbstractAsyncContextManager[MemoryTransaction]:
        message = "locked"
        raise StoreUnavailable(message)

    monkeypatch.setattr(house.store, "transaction", locked)
    await house.worker(app)
    handle = await (await house.client()).start(run_it)

    assert await handle.result(timeout=60) == "book did not finish within 10 s"
