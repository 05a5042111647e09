"""Telemetry of the embedded default, as a collector gets it: one way from a client to the projector."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.processes import COMMAND, PATIENCE_S, Service, until
from tests.scenario.collecting import Collector, Sent
from tidewheel.cli.exit_codes import ExitCode
from tidewheel.telemetry import names

#: The run's start and end, and for each of three steps the same.
EVENTS_OF_THE_RUN = 8
APP = """
import asyncio
import logging
from pathlib import Path

from tidewheel import App, Context, Retry

app = App("shop")


@app.task
async def pick(number: int) -> int:
    logging.getLogger("shop").warning("picking %d", number)
    return number


@app.task(retry=Retry(max_attempts=5, initial=0.01))
async def pack(number: int) -> int:
    Path("packing").touch()
    while not Path("open-the-gate").exists():
        await asyncio.sleep(0.02)
    return number


@app.task(process=True)
def weigh(number: int) -> int:
    from opentelemetry import trace

    logging.getLogger("shop").warning("weighing %d", number)
    with trace.get_tracer("shop").start_as_current_span("scales"):
        return number


@app.workflow
async def order(ctx: Context, number: int) -> int:
    picked = await ctx.invoke(pick, number)
    packed = await ctx.invoke(pack, picked)
    return await ctx.invoke(weigh, packed)
"""


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector that every process of the test sends to."""
    with Collector() as made:
        for name, text in made.variables.items():
            monkeypatch.setenv(name, text)
        yield made


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the app, and no settings but its own."""
    for name in ("TIDEWHEEL_STORE", "TIDEWHEEL_BROKER", "TIDEWHEEL_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "shop.py").write_text(APP)
    return tmp_path


def reached_from(start: Sent, spans: list[Sent]) -> set[str]:
    """Return the ids of all spans that a child or a link leads to, beginning at *start*."""
    reached = {start.span_id}
    while True:
        further = {
            span.span_id
            for span in spans
            if span.span_id not in reached and ({span.parent_id, *span.links} & reached)
        }
        if not further:
            return reached
        reached |= further


def attempts(spans: list[Sent]) -> list[tuple[str, int]]:
    """Return the task and the number of each attempt, as often as it was told of."""
    return sorted(
        (span.attributes[names.TASK], span.attributes[names.ATTEMPT])
        for span in spans
        if span.name.startswith("task ")
    )


def test_a_run_that_is_killed_and_taken_over_is_told_of_once(collector: Collector, folder: Path) -> None:
    """Client, worker, tasks, relay and projector are joined by parents and links; no attempt is twice."""
    first = Service("dev", "shop.py:app", "--json", folder=folder)
    second: Service | None = None
    try:
        first.wait_for('"ready"')
        started = _command(folder, "run", "start", "order", "--input", "[7]", "--run-id", "r")
        assert started.returncode == ExitCode.OK, started.stderr
        collector.wait_until(lambda: any(span.name == "task pick" for span in collector.spans))
        line = json.loads(first.wait_for("picking 7"))
        until((folder / "packing").exists)
        first.send(signal.SIGKILL)
        first.exit_code()
        second = Service("dev", "shop.py:app", "--json", folder=folder)
        (folder / "open-the-gate").touch()
        second.wait_for("completed after")
        collector.wait_until(lambda: _is_projected(collector.spans))
        weighing = json.loads(second.wait_for("weighing 7"))
        second.send(signal.SIGTERM)
        assert second.exit_code() == ExitCode.OK
    finally:
        first.end()
        if second is not None:
            second.end()

    spans = collector.spans
    (start,) = [span for span in spans if span.name == "start order"]
    assert start.service == "tidewheel-client"
    assert attempts(spans) == [("pack", 2), ("pick", 1), ("weigh", 1)]
    ids = [span.span_id for span in spans]
    assert len(set(ids)) == len(ids)
    of_the_run = {span.span_id for span in spans if names.RUN_ID in span.attributes}
    reached = reached_from(start, spans)
    assert of_the_run <= reached
    assert {"send tidewheel.events", "process tidewheel.events", "scales"} <= {
        span.name for span in spans if span.span_id in reached
    }
    (picked,) = [span for span in spans if span.name == "task pick"]
    assert (line["run_id"], line["step"], line["attempt"]) == ("r", "0", 1)
    assert (line["trace_id"], line["span_id"]) == (picked.trace_id, picked.span_id)
    (weighed,) = [span for span in spans if span.name == "task weigh"]
    assert (weighing["run_id"], weighing["step"], weighing["attempt"]) == ("r", "2", 1)
    assert weighing["trace_id"] == weighed.trace_id
    assert {"tidewheel.runs.ended", "tidewheel.relay.events", "tidewheel.projector.lag"} <= collector.metrics


def test_traces_go_over_rabbitmq_and_postgres(
    collector: Collector, folder: Path, fresh_postgres: str, fresh_rabbitmq: str
) -> None:
    """Contexts survive headers of AMQP and rows of the outbox, between processes that share nothing else."""
    (folder / "open-the-gate").touch()
    where = ["--store", fresh_postgres, "--broker", fresh_rabbitmq]
    assert _command(folder, "db", "migrate", "--store", fresh_postgres).returncode == ExitCode.OK
    commands = [["worker", "shop.py:app"], ["relay"], ["projector"]]
    fleet = [Service(*command, *where, folder=folder) for command in commands]
    try:
        for service in fleet:
            service.wait_for("ready")
        done = _command(folder, "run", "start", "order", "--input", "[7]", "--run-id", "r", "--wait", *where)
        assert done.stdout.strip() == "7", done.stderr
        collector.wait_until(lambda: _is_projected(collector.spans))
        for service in fleet:
            service.send(signal.SIGTERM)
        assert [service.exit_code() for service in fleet] == [ExitCode.OK] * 3
    finally:
        for service in fleet:
            service.end()

    spans = collector.spans
    (start,) = [span for span in spans if span.name == "start order"]
    reached = reached_from(start, spans)
    assert attempts(spans) == [("pack", 1), ("pick", 1), ("weigh", 1)]
    assert {span.trace_id for span in spans if names.RUN_ID in span.attributes} == {start.trace_id}
    assert {span.service for span in spans if span.span_id in reached} == {
        "tidewheel-client",
        "tidewheel-worker",
        "tidewheel-task",
        "tidewheel-relay",
        "tidewheel-projector",
    }
    systems = {span.attributes[names.SYSTEM] for span in spans if names.SYSTEM in span.attributes}
    assert systems == {"rabbitmq"}


def _command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command, and return what it said."""
    return subprocess.run(
        [*COMMAND, *arguments], cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def _is_projected(spans: list[Sent]) -> bool:
    """Tell whether all events of the run have been projected, in however many batches."""
    projected = [span for span in spans if span.name == "process tidewheel.events"]
    return sum(int(span.attributes[names.BATCH]) for span in projected) >= EVENTS_OF_THE_RUN
