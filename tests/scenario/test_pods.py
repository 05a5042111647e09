"""Worker pods on Postgres and RabbitMQ: processes, pools, probes, and servers that come late."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.processes import Service, children_of, is_alive, probe, until
from tests.scenario.fleet import Fleet
from tests.servers.postgres import PrivatePostgres
from tidewheel import Client
from tidewheel.cli.exit_codes import ExitCode

APP = """
import os
import time
from pathlib import Path

from tidewheel import App, Context, Retry

app = App("mill")


def note(what):
    with Path("milled.log").open("a") as log:
        log.write(f"{what} {os.getpid()}\\n")


@app.task(retry=Retry(max_attempts=5, initial=0.05))
def sift(sack: int, round: int) -> int:
    note(f"sift-{sack}-{round}")
    time.sleep(0.02)
    return sack


@app.task(process=True, queue="heavy")
def grind(sack: int) -> int:
    note(f"grind-{sack}")
    return 10 * sack


@app.workflow
async def mill(ctx: Context, sack: int) -> int:
    for round in range(5):
        await ctx.invoke(sift, sack, round)
    return await ctx.invoke(grind, sack)
"""
SACKS = 24


@pytest.fixture
def fleet(tmp_path: Path, fresh_postgres: str, fresh_rabbitmq: str) -> Iterator[Fleet]:
    """A database that was migrated, an empty virtual host, and an app."""
    made = Fleet(tmp_path, fresh_postgres, fresh_rabbitmq)
    (tmp_path / "mill.py").write_text(APP)
    assert made.run("db", "migrate").returncode == ExitCode.OK
    yield made
    made.close()


async def _mill(fleet: Fleet, sacks: range) -> list[int]:
    """Start a run for each of *sacks* at once, and return their results."""
    settings = fleet.settings
    async with await Client.connect(settings["TIDEWHEEL_STORE"], settings["TIDEWHEEL_BROKER"]) as client:
        handles = [await client.start("mill", sack) for sack in sacks]
        return [await handle.result(timeout=60) for handle in handles]


def _milled(fleet: Fleet) -> list[tuple[str, int]]:
    """Return what was executed, and in which process."""
    lines = (fleet.folder / "milled.log").read_text().splitlines()
    return [(what, int(pid)) for what, pid in (line.split() for line in lines)]


def test_a_pod_of_several_processes_executes_each_step_once(fleet: Fleet) -> None:
    """Its workers share the runs; a pool of its own has the heavy tasks, in processes; all of them drain."""
    fleet.start("keeper")
    sifters = fleet.start("worker", "mill.py:app", "--processes", "2", "--slots", "4")
    grinders = fleet.start("worker", "mill.py:app", "--queue", "heavy", "--health", "127.0.0.1:0")
    until(lambda: probe(grinders, "/readyz")[0] == 200)

    results = asyncio.run(_mill(fleet, range(SACKS)))
    sifted = {pid for what, pid in _milled(fleet) if what.startswith("sift")}
    grinding = children_of(grinders.pid)
    for service in (sifters, grinders):
        service.send(signal.SIGTERM)

    assert results == [10 * sack for sack in range(SACKS)]
    assert set(Counter(what for what, _ in _milled(fleet)).values()) == {1}
    assert sifted == {sifters.child("worker-1"), sifters.child("worker-2")}
    assert {pid for what, pid in _milled(fleet) if what.startswith("grind")} <= set(grinding)
    assert (sifters.exit_code(), grinders.exit_code()) == (ExitCode.OK, ExitCode.OK)
    assert not any(map(is_alive, grinding))
    assert fleet.run("journal", "verify", "--all").returncode == ExitCode.OK


def test_a_worker_process_that_is_killed_is_replaced(fleet: Fleet) -> None:
    """Again and again, while runs go on: all of them end, and their journals are in order."""
    fleet.start("keeper")
    pod = fleet.start("worker", "mill.py:app", "--processes", "2", "--queue", "default,heavy")

    results = []
    for round_ in range(3):
        os.kill(children_of(pod.pid)[0], signal.SIGKILL)
        results += asyncio.run(_mill(fleet, range(round_ * 10, round_ * 10 + 10)))
        until(lambda: len(children_of(pod.pid)) == 2)

    assert results == [10 * sack for sack in range(30)]
    assert pod.text.count("was ended by SIGKILL; it is started again") == 3
    assert fleet.run("journal", "verify", "--all").returncode == ExitCode.OK


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_pod_that_is_started_before_its_database_waits_for_it(
    tmp_path: Path,
    own_postgres: PrivatePostgres,
    fresh_rabbitmq: str,
    processes: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It lives and says what it waits for; nothing but the database has to come."""
    (tmp_path / "mill.py").write_text(APP)
    url = own_postgres.create_database("late")
    monkeypatch.setenv("TIDEWHEEL_STORE", url)
    monkeypatch.setenv("TIDEWHEEL_BROKER", fresh_rabbitmq)
    migrating = Service("db", "migrate", folder=tmp_path)
    assert migrating.exit_code() == ExitCode.OK
    migrating.end()
    own_postgres.stop()

    pod = Service("up", "mill.py:app", "--processes", processes, "--health", "127.0.0.1:0", folder=tmp_path)
    try:
        pod.wait_for("waits for the store, for up to")
        until(lambda: "the store" in json.dumps(probe(pod, "/readyz")))
        lives = probe(pod, "/healthz")
        own_postgres.start()
        pod.wait_for(" ready")
        until(lambda: probe(pod, "/readyz")[0] == 200)
        pod.send(signal.SIGTERM)

        assert lives[0] == 200
        assert pod.exit_code() == ExitCode.OK
    finally:
        pod.end()
