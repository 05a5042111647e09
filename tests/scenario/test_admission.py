"""A queue with a limit on Postgres and RabbitMQ: workers, keepers and clients keep to it together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenario.fleet import Fleet
from tidewheel import Client, Overloaded
from tidewheel.cli.exit_codes import ExitCode
from tidewheel.journal import events as ev

PATIENCE_S = 60.0
RUNS = 20
MAX_RUNNING = 3


@pytest.fixture
def fleet(tmp_path: Path, fresh_postgres: str, fresh_rabbitmq: str) -> Iterator[Fleet]:
    """A database that was migrated, two workers and two keepers."""
    made = Fleet(tmp_path, fresh_postgres, fresh_rabbitmq)
    assert made.run("db", "migrate").returncode == ExitCode.OK
    for arguments in (("keeper",), ("keeper",), *[("worker", "yard.py:app", "--queue", "default,heavy")] * 2):
        made.start(*arguments)
    yield made
    made.close()


async def _start_all(fleet: Fleet) -> tuple[list[int], int, int]:
    """Start runs, half of them by message; return results, the most that ran, and how many were refused."""
    settings = fleet.settings
    async with await Client.connect(settings["TIDEWHEEL_STORE"], settings["TIDEWHEEL_BROKER"]) as client:
        handles = []
        for number in range(RUNS):
            start = client.start if number % 2 else client.publish_start
            handles.append(await start("trip", number, run_id=f"trip-{number}"))
        most, refused = 0, 0
        waiting = asyncio.gather(*(handle.result(timeout=PATIENCE_S) for handle in handles))
        while not waiting.done():
            running = await client.runs(status="RUNNING", limit=500)
            most = max(most, sum(run.parent_key is None for run in running))
            await asyncio.wait([waiting], timeout=0.02)
        fleet.run("queue", "limit", "default", "--max-running", "0", "--overload", "reject")
        try:
            await client.start("trip", 0, run_id="late")
        except Overloaded:
            refused += 1
        return await waiting, most, refused


async def _admitted(fleet: Fleet) -> list[int]:
    """Return how often each run was admitted."""
    settings = fleet.settings
    async with await Client.connect(settings["TIDEWHEEL_STORE"], settings["TIDEWHEEL_BROKER"]) as client:
        journals = [await client.handle(f"trip-{number}").journal() for number in range(RUNS)]
    return [sum(isinstance(entry.event, ev.RunAdmitted) for entry in journal) for journal in journals]


def test_no_more_runs_are_under_way_than_may_be(fleet: Fleet) -> None:
    """All of them come to their result, a few at a time; each was admitted at most once."""
    limited = fleet.run("queue", "limit", "default", "--max-running", str(MAX_RUNNING))

    results, most, refused = asyncio.run(_start_all(fleet))

    admitted = asyncio.run(_admitted(fleet))
    (load,) = fleet.json_of("queue", "list")
    assert limited.returncode == ExitCode.OK
    assert results == [(number + 1) * 10 + number + 2 for number in range(RUNS)]
    assert 0 < most <= MAX_RUNNING
    assert set(admitted) <= {0, 1}
    assert 1 in admitted
    assert (load["running"], load["pending"], refused) == (0, 0, 1)
