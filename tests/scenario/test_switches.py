"""Each thing that makes it faster can be switched off, and nothing but the speed changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scenario.fleet import Fleet
from tidewheel import Client
from tidewheel.store.opening import open_store
from tidewheel.store.records import RunRef

RUNS = 6
OFF = {
    "no run is kept in memory": {"TIDEWHEEL_CACHE": "0"},
    "every append asks first": {"TIDEWHEEL_POSTGRES_REMEMBERED": "0"},
    "no two appends share a transaction": {"TIDEWHEEL_BATCH": "1"},
    "asyncio's own event loop": {"TIDEWHEEL_UVLOOP": "0"},
    "garbage as Python collects it": {"TIDEWHEEL_GC_THRESHOLD": "0"},
    "each run goes on by itself": {"TIDEWHEEL_SWEEP": "1"},
    "a start is written before the run goes on": {"TIDEWHEEL_OPENS": "0"},
    "the keeper fires timers": {"TIDEWHEEL_KEEPER_FIRES_AFTER": "0", "TIDEWHEEL_CACHE": "0"},
}
OFF["all of it"] = {name: value for switch in OFF.values() for name, value in switch.items()}

APP = """
from tidewheel import App, Context

app = App("line")


@app.task
async def cut(number: int) -> int:
    return number + 1


@app.task(inline=False)
async def paint(number: int) -> int:
    return number * 10


@app.workflow
async def part(ctx: Context, number: int) -> int:
    return await ctx.invoke(cut, number)


@app.workflow
async def line(ctx: Context, number: int) -> int:
    for _ in range(3):
        number = await ctx.invoke(cut, number)
    number = await ctx.invoke(paint, number)
    await ctx.sleep(0.05)
    return number + await ctx.invoke(part, number)
"""


@pytest.fixture
def fleet(tmp_path: Path, fresh_postgres: str, fresh_rabbitmq: str) -> Iterator[Fleet]:
    """A database that was migrated, an empty virtual host, and an app."""
    made = Fleet(tmp_path, fresh_postgres, fresh_rabbitmq)
    (tmp_path / "line.py").write_text(APP)
    assert made.run("db", "migrate").returncode == 0
    yield made
    made.close()


async def test_switching_it_off_changes_nothing_but_the_speed(fleet: Fleet) -> None:
    """The same runs with everything on and with something off: the same results and the same journals."""
    usual = await _story(fleet, "on", {})

    others = {what: await _story(fleet, f"off{place}", OFF[what]) for place, what in enumerate(OFF)}

    assert usual["results"] == [(number + 3) * 10 + (number + 3) * 10 + 1 for number in range(RUNS)]
    assert len(usual["journals"]) == 2 * RUNS
    assert others == dict.fromkeys(OFF, usual)


async def _story(fleet: Fleet, name: str, switched: dict[str, str]) -> dict[str, Any]:
    """Have some runs done by a fleet that is *switched* like this; return their results and journals.

    Every other run is started by a message.
    """
    fleet.settings |= switched
    keeper, worker = fleet.start("keeper"), fleet.start("worker", "line.py:app")
    store_url, broker_url = fleet.settings["TIDEWHEEL_STORE"], fleet.settings["TIDEWHEEL_BROKER"]
    async with await Client.connect(store_url, broker_url) as client:
        handles = [
            await (client.publish_start if number % 2 else client.start)(
                "line", number, run_id=f"{name}-{number}"
            )
            for number in range(RUNS)
        ]
        results = [await handle.result(timeout=30) for handle in handles]
    worker.end()
    keeper.end()
    for variable in switched:
        del fleet.settings[variable]
    store = await open_store(store_url)
    try:
        journals = [
            [(type(entry.event).__name__, getattr(entry.event, "promise_id", "")) for entry in entries]
            for number in range(RUNS)
            for run_id in (f"{name}-{number}", f"{name}-{number}:5")
            if (entries := await store.journal(RunRef("default", run_id)))
        ]
    finally:
        await store.close()
    return {"results": results, "journals": journals}
