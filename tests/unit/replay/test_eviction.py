"""Eviction: a run's memory is given up without a trace, whatever its code does about it."""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.replay.journals import Driver, done, failed, unchecked
from tidewheel import App, Context, InvalidRequest
from tidewheel.replay.violation import Halted

app = App("eviction")
RUNS = 20_000


@app.task
async def work(item: int) -> int:
    """A task."""
    return item


@pytest.fixture
def quiet(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Nothing may be printed, logged or raised where nobody can catch it."""
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    yield
    gc.collect()
    assert [str(one.exc_value) for one in unraisable] == []
    assert capsys.readouterr() == ("", "")
    assert caplog.records == []


@pytest.mark.usefixtures("quiet")
def test_eviction_runs_finally_blocks_and_records_nothing() -> None:
    """The coroutine is closed where it stands; its durable calls are refused, not journaled."""
    log: list[str] = []

    @unchecked()
    async def order(ctx: Context) -> None:
        async def branch(n: int) -> None:
            try:
                await ctx.invoke(work, n)
            finally:
                log.append(f"finally {n}")
                try:
                    await ctx.invoke(work, 100 + n)
                except BaseException as refused:
                    log.append(type(refused).__name__)
                    raise

        try:
            await asyncio.gather(branch(0), branch(1))
        finally:
            log.append("main")

    driver = Driver(order)
    driver.activate()
    before = list(driver.entries)
    driver.execution.evict()
    driver.execution.evict()

    assert sorted(log) == ["Halted", "Halted", "finally 0", "finally 1", "main"]
    assert driver.execution.moves == []
    assert driver.entries == before


@pytest.mark.parametrize(
    "verb",
    ["invoke", "run", "sleep", "signal", "promise", "join_set", "now", "random", "uuid", "state", "continue"],
)
@pytest.mark.usefixtures("quiet")
def test_every_verb_of_a_dead_context_raises(verb: str) -> None:
    """Also from a finally block, and also after the eviction is over."""
    refused: list[type[BaseException]] = []
    kept: list[Context] = []

    def call(ctx: Context) -> None:
        match verb:
            case "invoke":
                ctx.invoke(work, 1)
            case "run":
                ctx.run("key", lambda: 1)
            case "sleep":
                ctx.sleep(1)
            case "signal":
                ctx.signal("go")
            case "promise":
                ctx.promise("p")
            case "join_set":
                ctx.join_set()
            case "now":
                ctx.now()
            case "random":
                ctx.random()
            case "uuid":
                ctx.uuid()
            case "state":
                ctx.state["k"] = 1
            case _:
                ctx.continue_as_new()

    @unchecked()
    async def order(ctx: Context) -> None:
        kept.append(ctx)
        try:
            await ctx.sleep(10)
        finally:
            try:
                call(ctx)
            except BaseException as problem:  # noqa: BLE001 - its kind is what is tried
                refused.append(type(problem))

    driver = Driver(order)
    driver.activate()
    driver.execution.evict()
    assert refused == [Halted]

    with pytest.raises((Halted, InvalidRequest)):
        call(kept[0])


@pytest.mark.parametrize("how", ["verb", "asyncio", "nothing durable", "nested"])
@pytest.mark.usefixtures("quiet")
@pytest.mark.timeout(20)
def test_code_that_will_not_stop_does_not_hang_eviction(how: str) -> None:
    """Endless loops that catch BaseException are left as they are, silently."""

    @unchecked()
    async def order(ctx: Context) -> None:
        async def stubborn() -> None:
            while True:
                try:
                    match how:
                        case "verb":
                            await ctx.sleep(1)
                        case "asyncio":
                            await asyncio.sleep(1)
                        case "nested":
                            await asyncio.gather(ctx.signal("go"), ctx.signal("stop"))
                        case _:
                            await asyncio.Event().wait()
                except BaseException:  # noqa: BLE001, S112 - the point is that it never gives up
                    continue

        await asyncio.gather(stubborn(), ctx.sleep(5))

    driver = Driver(order)
    driver.activate()
    driver.execution.evict()
    del driver
    gc.collect()


@pytest.mark.usefixtures("quiet")
def test_generators_and_context_managers_are_closed() -> None:
    """Async generators that are suspended, abandoned or in the middle of an await do not complain.

    Before Python 3.13 the last kind cannot be closed, only dropped.
    """
    closed: list[str] = []

    @unchecked()
    async def order(ctx: Context) -> None:
        async def numbers(name: str, *, waits: bool) -> AsyncIterator[int]:
            try:
                yield 1
                if waits:
                    await ctx.sleep(10)
                yield 2
            finally:
                closed.append(name)
                await ctx.sleep(1)

        async for _ in numbers("abandoned", waits=False):
            break
        async for _ in numbers("waiting", waits=True):
            pass

    driver = Driver(order)
    driver.activate()
    driver.execution.evict()
    gc.collect()

    assert [name for name in closed if name != "waiting"] == ["abandoned"]


@pytest.mark.usefixtures("quiet")
def test_failures_nobody_saw_are_not_told_by_eviction() -> None:
    """A branch or step that failed is told when the run ends, by whoever replays it then."""

    @unchecked()
    async def order(ctx: Context) -> list[int]:
        async def fails() -> None:
            raise ValueError("later")

        branch = asyncio.create_task(fails())
        step = ctx.start(work, 1)
        await ctx.invoke(work, 2)
        await branch
        return [await step]

    driver = Driver(order)
    driver.activate()
    driver.activate(failed("0"))
    driver.execution.evict()


# Memory


def suspended(n: int) -> Driver:
    """A run that has branches, timers, generators and a join set open."""
    driver = Driver(everything, n)
    driver.activate()
    return driver


@unchecked()
async def everything(ctx: Context, n: int) -> None:
    """Wait in every way at once."""

    async def numbers() -> AsyncIterator[int]:
        yield 1
        await ctx.sleep(n + 1)

    async def consume() -> None:
        async for _ in numbers():
            pass

    async def take() -> None:
        async with ctx.join_set() as joined:
            joined.submit(work, n)
            joined.submit(ctx.start(work, n, key="again"))
            ctx.start(work, n, key="again")
            await joined.next()

    async with asyncio.timeout(100), asyncio.TaskGroup() as group:
        group.create_task(consume())
        group.create_task(take())
        await asyncio.gather(ctx.signal("go", timeout=5), ctx.promise("p", timeout=6), asyncio.sleep(3))


def test_an_evicted_execution_needs_no_collector() -> None:
    """No reference cycle is left: dropping the last reference frees it at once."""
    gc.collect()
    gc.disable()
    try:
        driver = suspended(1)
        driver.execution.evict()
        execution, loop = weakref.ref(driver.execution), weakref.ref(driver.execution.loop)
        del driver

        assert execution() is None
        assert loop() is None
    finally:
        gc.enable()


def test_a_finished_execution_needs_no_collector() -> None:
    """The same for a run that came to its end."""

    @unchecked()
    async def order(ctx: Context) -> int:
        return await ctx.invoke(work, 1)

    gc.collect()
    gc.disable()
    try:
        driver = Driver(order)
        driver.activate()
        driver.activate(done("0", 1))
        driver.execution.evict()
        alive = weakref.ref(driver.execution)
        del driver

        assert alive() is None
    finally:
        gc.enable()


def test_memory_stays_flat_over_many_runs() -> None:
    """Creating and evicting runs leaves neither objects nor memory behind."""
    for n in range(500):
        suspended(n).execution.evict()
    gc.collect()
    objects, memory = len(gc.get_objects()), resident()

    for n in range(RUNS):
        suspended(n).execution.evict()

    gc.collect()
    assert len(gc.get_objects()) - objects < 500
    assert resident() - memory < 8 * 2**20


def resident() -> int:
    """The process's memory in bytes, where the system tells."""
    status = Path("/proc/self/statm")
    return int(status.read_text("utf-8").split()[1]) * 4096 if status.exists() else 0
