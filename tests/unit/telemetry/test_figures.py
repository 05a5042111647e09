"""Figures of clients, workers and alerts: few of a kind, whatever runs there are."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from tests.unit.telemetry.recording import Recording
from tests.unit.workers.house import House
from tidewheel import App, Client, Context, Retry, RunFailed
from tidewheel.broker.alerts import alert_of
from tidewheel.broker.memory import MemoryBroker
from tidewheel.broker.watched import watched
from tidewheel.telemetry import names
from tidewheel.workers.alarms import Alarms
from tidewheel.workers.worker import Worker

app = App("counted")


@app.task(retry=Retry(max_attempts=1))
async def pick(number: int) -> int:
    """A step that fails with odd numbers."""
    if number % 2:
        raise ValueError("odd")
    return number


@app.workflow
async def order(ctx: Context, number: int) -> int:
    """One step."""
    return await ctx.invoke(pick, number)


def value(figures: dict[str, list[tuple[dict[str, Any], Any]]], metric: names.MetricName, **told: str) -> Any:
    """Return the sum of the points of *metric* that say what is *told*, with dots for underscores."""
    wanted = {name.replace("_", "."): text for name, text in told.items()}
    return sum(
        point for attributes, point in figures.get(metric.name, []) if wanted.items() <= attributes.items()
    )


async def test_runs_and_attempts_are_counted_by_how_they_ended(house: House, recording: Recording) -> None:
    """Whoever looks sees how many there were of each kind, and no run by itself."""
    client = await house.client()
    await house.worker(app)

    for number in range(6):
        handle = await client.start(order, number)
        if number % 2:
            with pytest.raises(RunFailed):
                await handle.result()
        else:
            await handle.result()

    figures = recording.figures()
    assert value(figures, names.RUNS_STARTED, tidewheel_workflow="order") == 6
    assert value(figures, names.RUNS_ENDED, tidewheel_run_status="completed") == 3
    assert value(figures, names.RUNS_ENDED, tidewheel_run_status="failed", tidewheel_workflow="order") == 3
    assert value(figures, names.STEP_ATTEMPTS, tidewheel_outcome="ok") == 3
    assert value(figures, names.STEP_ATTEMPTS, tidewheel_outcome="error", error_type="ValueError") == 3
    assert value(figures, names.STEP_DURATION, tidewheel_task="pick") == 6
    assert value(figures, names.APPEND_DURATION) >= 12
    assert value(figures, names.APPEND_GROUP) >= 1
    assert value(figures, names.PROCESS_DURATION) == 6
    assert value(figures, names.WORKER_RUNS) == 0
    assert value(figures, names.HINTS_DROPPED) == 0
    texts = {
        str(text) for points in figures.values() for attributes, _ in points for text in attributes.values()
    }
    assert not [text for text in texts if text.startswith("order-")]


async def test_starting_what_is_there_is_not_counted(house: House, recording: Recording) -> None:
    """A run that was started twice was started once."""
    client = await house.client()

    for _ in range(2):
        await client.start(order, 2, run_id="r")

    assert value(recording.figures(), names.RUNS_STARTED) == 1


async def test_messages_are_counted_by_where_they_go(recording: Recording) -> None:
    """The queues of single processes are told as one: there are as many as there are processes."""
    house = House()
    broker = watched(house.broker, "rabbitmq")

    worker = Worker(app, house.store, broker, secret=b"test", threads=False)
    await worker.start()
    client = await Client.connect(house.store, broker)
    await (await client.start(order, 2)).result()
    await client.close()
    await worker.stop()

    figures = recording.figures()
    where = {attributes[names.DESTINATION] for attributes, _ in figures[names.SENT.name]}
    assert where == {"tidewheel.work.default", "tidewheel.reply"}
    assert value(figures, names.SENT, messaging_destination_name="tidewheel.work.default") == 1
    assert value(figures, names.CONSUMED, messaging_destination_name="tidewheel.work.default") == 1
    assert value(figures, names.OPERATION_DURATION, messaging_system="rabbitmq") >= 2


async def test_alerts_are_counted_by_name_and_severity(recording: Recording) -> None:
    """An alert is a figure beside its line and its message."""
    alarms = Alarms(MemoryBroker())
    at = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)

    for number in range(2):
        alarms.raise_alert(
            alert_of("PROJECTOR_LAG_HIGH", namespace="shop", summary=f"late {number}", raised_at=at)
        )
    await alarms.close()

    ((attributes, count),) = recording.figures()["tidewheel.alerts"]
    assert count == 2
    assert attributes == {
        names.ALERT: "PROJECTOR_LAG_HIGH",
        names.SEVERITY: "P2",
        names.NAMESPACE: "shop",
    }


async def test_everything_that_is_told_was_declared(house: House, recording: Recording) -> None:
    """A figure with an attribute that the list does not have would not be on the page."""
    client = await house.client()
    await house.worker(app)
    await (await client.start(order, 2)).result()

    declared = {metric.name: set(metric.attributes) for metric in names.METRICS}
    for metric, points in recording.figures().items():
        for attributes, _ in points:
            assert attributes.keys() <= declared[metric], metric
    spans: dict[tuple[str, str], set[str]] = {}
    for name in names.SPANS:
        spans.setdefault((name.verb, name.kind), set()).update(name.attributes)
    told = {(span.name.partition(" ")[0], span.kind.name): span for span in recording.spans()}
    assert told
    for key, span in told.items():
        assert (span.attributes or {}).keys() <= spans[key], key
