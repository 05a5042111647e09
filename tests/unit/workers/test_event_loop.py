"""Which event loop our own processes run on, and that everything works on uvloop's."""

from __future__ import annotations

import asyncio
import sys

import pytest

from tidewheel import App, Client, Context
from tidewheel.broker.memory import MemoryBroker
from tidewheel.store.memory import MemoryStore
from tidewheel.workers.config import EventLoopConfig
from tidewheel.workers.event_loop import loop_factory, run
from tidewheel.workers.keeper import Keeper
from tidewheel.workers.process import Role, running
from tidewheel.workers.worker import Worker

ON, OFF = EventLoopConfig(), EventLoopConfig(uvloop=False)

app = App("loops")


@app.task
async def double(number: int) -> int:
    """Wait for nothing, but for real."""
    await asyncio.sleep(0.001)
    return 2 * number


@app.workflow
async def doubled(ctx: Context, number: int) -> int:
    """Sleep, and do two things side by side."""
    await ctx.sleep(0.01)
    return sum(await asyncio.gather(ctx.invoke(double, number), ctx.invoke(double, number)))


async def _kind_of_loop() -> str:
    return type(asyncio.get_running_loop()).__module__.partition(".")[0]


def test_a_process_uses_uvloop_unless_told_otherwise() -> None:
    """By default, and not where the switch is off."""
    pytest.importorskip("uvloop")

    assert run(_kind_of_loop(), ON) == "uvloop"
    assert run(_kind_of_loop(), OFF) == "asyncio"
    assert EventLoopConfig.from_environment({"TIDEWHEEL_UVLOOP": "0"}) == OFF


def test_where_there_is_no_uvloop_asyncio_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows."""
    monkeypatch.setitem(sys.modules, "uvloop", None)

    assert loop_factory(ON) is None
    assert run(_kind_of_loop(), ON) == "asyncio"


@pytest.mark.parametrize("config", [ON, OFF])
def test_runs_move_on_either_loop(config: EventLoopConfig) -> None:
    """The loop of workflow code is entered and left inside the process's own, whichever that is."""

    async def go() -> list[int]:
        store, broker = MemoryStore(), MemoryBroker()
        roles: list[Role] = [Keeper(store, broker), Worker(app, store, broker)]
        async with running(roles), await Client.connect(store, broker) as client:
            handles = await asyncio.gather(*(client.start(doubled, number) for number in range(20)))
            return await asyncio.gather(*(handle.result(timeout=30) for handle in handles))

    assert run(go(), config) == [4 * number for number in range(20)]
