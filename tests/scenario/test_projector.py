"""Projectors on real Postgres and RabbitMQ: killed, stopped, robbed of messages, and right in the end.

Faults 46 to 50 of the catalogue.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import psycopg
import pytest

from tests.conformance.store.driving import Run, a_start, done, ends, resumes, task, waits
from tidewheel.broker.bus import publication_of_event
from tidewheel.broker.opening import open_broker
from tidewheel.broker.protocol import Broker
from tidewheel.broker.topology import SHARDS, projector_queue, projector_topology
from tidewheel.journal.jsonform import canonical
from tidewheel.journal.public import PublicEvent, published
from tidewheel.journal.snapshot import snapshot_of, to_json
from tidewheel.store.append import Append
from tidewheel.store.opening import open_store
from tidewheel.store.protocol import Store

#: How long anything may take: far more than it should.
PATIENCE_S = 60.0


class Process:
    """A projector's process, and what it said."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.said: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(json.loads(line))

    @property
    def is_ready(self) -> bool:
        """Whether it works."""
        return any("ready" in line for line in self.said)

    @property
    def alerts(self) -> list[dict[str, Any]]:
        """The alerts that it raised."""
        return [line for line in self.said if "name" in line]

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def end(self) -> None:
        """Leave nothing behind."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGCONT)
        self.process.kill()
        self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()


class Scene:
    """A database with runs, a bus, and processes that project."""

    def __init__(self, store: Store, broker: Broker, urls: tuple[str, str]) -> None:
        self.store = store
        self.broker = broker
        self.urls = urls
        self.processes: list[Process] = []
        self.runs: list[Run] = []

    def begin(self, **options: Any) -> Process:
        """Start a projector."""
        place = {"store": self.urls[0], "broker": self.urls[1]}
        process = Process("tests.scenario.projecting", json.dumps(place | options))
        self.processes.append(process)
        return process

    async def ready(self, *processes: Process) -> None:
        """Wait until they work."""
        await until(lambda: all(process.is_ready for process in processes))

    async def live(self, count: int, steps: int = 2) -> list[list[PublicEvent]]:
        """Let so many runs live to their end, and return what each publishes."""
        runs = [Run(self.store, f"r-{len(self.runs) + number}") for number in range(count)]
        await self.store.append([Append(run=run.ref, start=a_start()) for run in runs])
        await asyncio.gather(*(self._live(run, steps) for run in runs))
        self.runs += runs
        self.execute("DELETE FROM tidewheel_outbox")
        return [published(await run.journal(), run.ref.run_id) for run in runs]

    async def _live(self, run: Run, steps: int) -> None:
        for number in range(steps):
            await run.see()
            before = [resumes(str(number - 1))] if number else []
            await run.move(*before, task(str(number), key=f"step-{number}"), waits(str(number)))
            await run.tell(done(str(number)))
        await run.see()
        await run.move(resumes(str(steps - 1)), ends())

    async def publish(self, events: Sequence[PublicEvent]) -> None:
        """Publish *events* in this order."""
        await self.broker.publish([publication_of_event(event, "default") for event in events])

    def execute(self, sql: str) -> list[Any]:
        """Execute a statement of the test's own."""
        with psycopg.connect(self.urls[0], autocommit=True) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    async def wrong(self) -> list[str]:
        """Return the runs whose snapshot is not what their journal gives, byte by byte."""
        found = []
        for run in self.runs:
            stored = await self.store.snapshots.read(run.ref)
            truth = snapshot_of(await run.journal(), run.ref.run_id)
            if stored is None or canonical(to_json(stored)) != canonical(to_json(truth)):
                found.append(run.ref.run_id)
        return found

    async def becomes_right(self) -> None:
        """Wait until every snapshot is what its journal gives."""
        deadline = time.monotonic() + PATIENCE_S
        while wrong := await self.wrong():
            assert time.monotonic() < deadline, f"still wrong: {wrong[:5]}"
            await asyncio.sleep(0.1)

    async def is_settled(self) -> None:
        """Wait until no queue has anything, in hand or not."""
        for process in self.processes:
            if process.process.poll() is None:
                process.send(signal.SIGTERM)
                assert await asyncio.to_thread(process.process.wait, PATIENCE_S) == 0
        depths = [await self.broker.depth(projector_queue("default", shard)) for shard in range(SHARDS)]
        assert depths == [0] * SHARDS


async def until(check: Callable[[], bool]) -> None:
    """Wait until *check* is content."""
    deadline = time.monotonic() + PATIENCE_S
    while not check():
        assert time.monotonic() < deadline, "waited too long"
        await asyncio.sleep(0.02)


@pytest.fixture
async def scene(journals: str, fresh_rabbitmq: str) -> AsyncIterator[Scene]:
    """Servers with nothing on them but the schema and the queues."""
    store, broker = await open_store(journals), open_broker(fresh_rabbitmq, store_url=journals)
    await broker.declare(projector_topology("default"))
    made = Scene(store, broker, (journals, fresh_rabbitmq))
    yield made
    for process in made.processes:
        process.end()
    await broker.close()
    await store.close()


def interleaved(streams: Sequence[Sequence[PublicEvent]]) -> list[PublicEvent]:
    """Return all events, each run's in order, mixed."""
    return [
        stream[place] for place in range(max(map(len, streams))) for stream in streams if place < len(stream)
    ]


async def test_46_projectors_killed_between_storing_and_acknowledging_count_nothing_twice(
    scene: Scene,
) -> None:
    """Several processes, each killed after a few writes and replaced; every event arrives twice besides."""
    chance = random.Random(46)
    streams = await scene.live(120)
    events = interleaved(streams)
    deaths = 0

    def another() -> Process:
        dies = {chance.choice(["save", "project"]): chance.randint(1, 3)} if deaths < 12 else {}
        # Nobody looks: what was acknowledged too early would be missing, or be a gap.
        config = {"batch": 20, "prefetch": 50, "lease_s": 1.0, "patience_s": 5.0, "look_s": 1000.0}
        return scene.begin(dies=dies, config=config)

    crew = [another() for _ in range(3)]
    await scene.ready(*crew)
    for start in range(0, len(events), 60):
        await scene.publish(events[start : start + 60])
        await scene.publish(chance.sample(events[: start + 60], 20))
        for place, process in enumerate(crew):
            if process.process.poll() is not None:
                deaths += 1
                crew[place] = another()
        await asyncio.sleep(0.2)
    while deaths < 12:
        await asyncio.sleep(0.1)
        await scene.publish(chance.sample(events, 20))
        for place, process in enumerate(crew):
            if process.process.poll() is not None:
                deaths += 1
                crew[place] = another()
    crew.append(another())

    await scene.becomes_right()
    expected = Counter(event.event_type for event in events)
    counted = "SELECT event_type, count FROM events_seen"
    await until(lambda: dict(scene.execute(counted)) == expected)
    await until(lambda: any(process.process.poll() is None for process in crew))
    assert scene.execute("SELECT count(*) FROM tidewheel_snapshots WHERE stale") == [(0,)]
    alerts = [alert for process in scene.processes for alert in process.alerts]
    assert [alert for alert in alerts if alert["name"] == "PROJECTOR_GAP_DETECTED"] == []


async def test_47_and_48_gaps_are_told_of_and_closed_within_a_second(scene: Scene) -> None:
    """An event that comes later than the one after it, and events that never come at all."""
    process = scene.begin(config={"patience_s": 0.3})
    await scene.ready(process)
    streams = await scene.live(20)
    dropped = [stream[:2] + stream[3:] for stream in streams]
    began = time.monotonic()

    await scene.publish(interleaved(dropped))
    await scene.becomes_right()
    took_s = time.monotonic() - began
    await scene.publish([stream[2] for stream in streams])

    gaps = [alert for alert in process.alerts if alert["name"] == "PROJECTOR_GAP_DETECTED"]
    assert {alert["run_id"] for alert in gaps} == {run.ref.run_id for run in scene.runs}
    assert {alert["severity"] for alert in gaps} == {"P1"}
    assert took_s < 5  # a second, and time to compare everything on a busy machine
    expected = Counter(event.event_type for stream in streams for event in stream)
    await until(lambda: dict(scene.execute("SELECT event_type, count FROM events_seen")) == expected)
    await scene.is_settled()


async def test_48_what_was_lost_with_the_queues_is_found(scene: Scene) -> None:
    """The last events of runs, after which nothing comes that could tell."""
    process = scene.begin(config={"look_s": 0.5, "quiet_s": 1.0})
    await scene.ready(process)
    streams = await scene.live(10)
    await scene.publish(interleaved([stream[:3] for stream in streams]))
    await until(lambda: scene.execute("SELECT count(*) FROM tidewheel_snapshots") == [(10,)])
    for shard in range(SHARDS):
        await scene.broker.delete_queue(projector_queue("default", shard))

    await scene.becomes_right()

    assert "PROJECTOR_GAP_DETECTED" in [alert["name"] for alert in process.alerts]


async def test_49_a_stopped_projector_says_that_it_is_late(scene: Scene) -> None:
    """It stood still, and projects what happened meanwhile; or another one has taken over by then."""
    process = scene.begin(config={"lag_s": 2.0, "look_s": 1000.0})
    await scene.ready(process)
    process.send(signal.SIGSTOP)
    streams = await scene.live(5)
    await scene.publish(interleaved(streams))
    await asyncio.sleep(2.5)
    process.send(signal.SIGCONT)

    await scene.becomes_right()

    await until(lambda: bool(process.alerts))
    (alert,) = process.alerts
    assert (alert["name"], alert["severity"]) == ("PROJECTOR_LAG_HIGH", "P2")
    assert alert["details"]["lag_s"] > 2


async def test_50_snapshots_that_were_damaged_or_deleted_are_rebuilt(scene: Scene) -> None:
    """By the command, while a projector goes on; they are what the journals give, byte by byte."""
    process = scene.begin()
    await scene.ready(process)
    first = await scene.live(30)
    await scene.publish(interleaved(first))
    await scene.becomes_right()
    scene.execute("DELETE FROM tidewheel_snapshots WHERE run_id LIKE '%%1'")
    scene.execute(
        "UPDATE tidewheel_snapshots SET status = 'FAILED', last_event_seq = 99, snapshot = snapshot"
        """ || '{"status": "FAILED", "lastEventSeq": 99, "steps": []}' WHERE run_id LIKE '%%2'"""
    )
    second = await scene.live(30)
    publishing = asyncio.create_task(scene.publish(interleaved(second)))
    command = [sys.executable, "-m", "tidewheel.cli.main", "projector", "rebuild", "--store", scene.urls[0]]

    rebuilt = await asyncio.to_thread(subprocess.run, [*command, "--json"], capture_output=True, check=True)
    await publishing

    await scene.becomes_right()
    assert json.loads(rebuilt.stdout)["written"] >= 6
    again = await asyncio.to_thread(
        subprocess.run, [*command, "--dry-run", "--json"], capture_output=True, check=False
    )
    assert (again.returncode, json.loads(again.stdout)["level"]) == (0, 60)


async def test_one_that_dies_hands_its_share_over(scene: Scene) -> None:
    """Two share the work; after one was killed the other has all of it, within a lease or so."""
    first, second = scene.begin(config={"lease_s": 1.0}), scene.begin(config={"lease_s": 1.0})
    await scene.ready(first, second)
    await scene.publish(interleaved(await scene.live(40)))
    await scene.becomes_right()
    first.send(signal.SIGKILL)

    await scene.publish(interleaved(await scene.live(40)))
    began = time.monotonic()
    await scene.becomes_right()

    assert time.monotonic() - began < 15
    assert second.process.poll() is None
    await scene.is_settled()


async def test_the_command_projects_on_real_servers(scene: Scene) -> None:
    """``tidewheel projector`` as it is installed, until it is told to stop."""
    place = ["--store", scene.urls[0], "--broker", scene.urls[1]]
    scene.processes.append(Process("tidewheel.cli.main", "projector", "--json", *place))

    await scene.publish(interleaved(await scene.live(10)))

    await scene.becomes_right()
    await scene.is_settled()
    assert scene.execute("SELECT count(*) FROM tidewheel_projectors") == [(0,)]
