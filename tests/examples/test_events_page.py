"""``docs/events.md``: its tables are the code's, and its consumer bears what the bus may do to it."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import aio_pika
import pytest

from tests.examples.test_documentation import ROOT, blocks
from tidewheel.broker.alerts import KNOWN_ALERTS, Alert
from tidewheel.broker.bus import EventBody, publication_of_event
from tidewheel.broker.commands import CancelCommand, SignalCommand, StartCommand
from tidewheel.journal import events as ev
from tidewheel.journal.public import PUBLIC_TYPES, PublicEvent, published
from tidewheel.telemetry.context import TraceContext

pytestmark = pytest.mark.skipif(
    not (ROOT / "Makefile").exists(), reason="an unpacked sdist has no folders at the root"
)

SECONDS_MAX = 30.0
PAUSE_S = 0.05
AT = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)


def page(name: str = "events") -> str:
    """Return the text of a page."""
    return (ROOT / "docs" / f"{name}.md").read_text("utf-8")


def rows(text: str, first: str) -> list[list[str]]:
    """Return the rows of the table of *text* whose first column is headed *first*."""
    table = text.partition(f"\n| {first} |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()[2:]]


def quoted(cell: str) -> tuple[str, ...]:
    """Return the words of *cell* that are written as code."""
    return tuple(re.findall(r"`([^`]+)`", cell))


# What it says


def test_every_event_is_in_the_table_with_its_data() -> None:
    """None is missing, none is invented."""
    said = {quoted(event)[0]: quoted(data.strip("| ")) for event, _, data in rows(page(), "event")}

    assert said == PUBLIC_TYPES


def test_every_field_of_the_body_is_in_the_table() -> None:
    """Each once."""
    said = [name for fields, *_ in rows(page(), "field") for name in quoted(fields)]

    assert sorted(said) == sorted(EventBody.__struct_encode_fields__)


def test_every_header_is_in_the_table() -> None:
    """Each that is published, where traces are kept too, and no other but AMQP's own."""
    event = published([ev.Entry(0, AT, ev.ExecutionStarted(workflow="w"))], "r")[0]
    said = {name for headers, *_ in rows(page(), "header") for name in quoted(headers)}

    relayed = {"traceparent", "tracestate"}
    trace = TraceContext(f"00-{1:032x}-{2:016x}-01", "shop=1")
    assert (
        said - {"message_id"} - relayed == publication_of_event(event, "shop", trace).message.headers.keys()
    )


def test_every_alert_is_in_the_table_with_what_to_do() -> None:
    """In the very words of the table that alerts are made from."""
    said = rows(page(), "alert")

    assert said == [
        [f"`{known.name}`", known.severity, known.meaning, known.action] for known in KNOWN_ALERTS.values()
    ]
    assert all(f"`{name}`" in page().partition("## Alerts")[2] for name in Alert.__struct_encode_fields__)


def test_the_page_on_commands_names_every_field() -> None:
    """But for the one that only Tidewheel's own clients have a use for."""
    kinds = {"start": StartCommand, "signal": SignalCommand, "cancel": CancelCommand}
    for key, body in rows(page("commands"), "key"):
        said = set(re.findall(r"`(\w+)`", body)) | set(re.findall(r'"(\w+)":', body))

        assert said == set(kinds[quoted(key)[0]].__struct_fields__) - {"reply_to"}


# What its consumer does


@contextmanager
def consumer(folder: Path, broker: str) -> Iterator[None]:
    """Run the consumer of the page in *folder* while the block lasts, then kill it."""
    (code,) = (block.text for block in blocks(page()) if block.directives.get("file") == "consumer.py")
    (folder / "consumer.py").write_text(code, "utf-8")
    with (folder / "consumer.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "consumer.py"],
            cwd=folder,
            env={"PATH": os.defpath, "TIDEWHEEL_BROKER": broker},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield
        assert process.poll() is None, (folder / "consumer.log").read_text("utf-8")
    finally:
        process.kill()
        process.wait()


@pytest.fixture
async def bus(fresh_rabbitmq: str) -> AsyncIterator[aio_pika.abc.AbstractChannel]:
    """A channel to the broker of the test."""
    async with await aio_pika.connect(fresh_rabbitmq) as connection:
        yield await connection.channel()


def order(run_id: str) -> list[PublicEvent]:
    """Return what a run of one step tells: four events."""
    events: tuple[ev.Event, ...] = (
        ev.ExecutionStarted(workflow="fulfil", input=["1001"]),
        ev.InvokeScheduled(promise_id="0", function_name="charge"),
        ev.InvokeStarted(promise_id="0", attempt=1),
        ev.InvokeCompleted(promise_id="0", attempt=1, result=ev.Result(ok=7800)),
        ev.ExecutionResumed(applied=["0"]),
        ev.ExecutionCompleted(result=ev.Result(ok=7800)),
    )
    return published([ev.Entry(seq, AT, event) for seq, event in enumerate(events)], run_id)


async def tell(bus: aio_pika.abc.AbstractChannel, events: list[PublicEvent]) -> None:
    """Publish *events* in this order, and see that a queue takes each."""
    exchange = await bus.declare_exchange("tidewheel.events", "topic", durable=True)
    for event in events:
        sent = publication_of_event(event, "default")
        message = aio_pika.Message(sent.message.body, message_id=sent.message.message_id)
        await exchange.publish(message, sent.routing_key, mandatory=True)


async def until_bound(folder: Path) -> None:
    """Wait until the consumer has said that it waits."""
    deadline = time.monotonic() + SECONDS_MAX
    log = folder / "consumer.log"
    while "waiting" not in log.read_text("utf-8"):
        assert time.monotonic() < deadline, log.read_text("utf-8")
        await asyncio.sleep(PAUSE_S)


async def sold(folder: Path, *, handled: int) -> list[tuple[str, int]]:
    """Return the sales, once so many runs were *handled* to their end."""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        with closing(sqlite3.connect(folder / "sales.db")) as db:
            ended = db.execute("SELECT count(*) FROM handled WHERE seq = 5").fetchone()[0]
            found = db.execute("SELECT run_id, cents FROM sales ORDER BY run_id").fetchall()
        if ended >= handled:
            return found
        assert time.monotonic() < deadline, f"{ended} of {handled} runs"
        await asyncio.sleep(PAUSE_S)


async def dead_letters(bus: aio_pika.abc.AbstractChannel, number: int) -> list[str | None]:
    """Return the ids of so many dead letters, which RabbitMQ moves in its own time."""
    found: list[str | None] = []
    deadline = time.monotonic() + SECONDS_MAX
    queue = await bus.declare_queue("sales.dlq", passive=True)
    while len(found) < number:
        message = await queue.get(no_ack=True, fail=False)
        if message is not None:
            found.append(message.message_id)
            continue
        assert time.monotonic() < deadline, f"{len(found)} of {number} dead letters"
        await asyncio.sleep(PAUSE_S)
    return found


async def test_what_comes_twice_counts_once(
    bus: aio_pika.abc.AbstractChannel, fresh_rabbitmq: str, tmp_path: Path
) -> None:
    """Single events, a whole run, and again after its end."""
    first, last = order("order-1"), order("order-2")

    with consumer(tmp_path, fresh_rabbitmq):
        await until_bound(tmp_path)
        await tell(bus, [event for event in first for _ in range(2)] + first + last)
        sales = await sold(tmp_path, handled=2)

    assert sales == [("order-1", 7800), ("order-2", 7800)]
    dead = await bus.declare_queue("sales.dlq", passive=True)
    assert await dead.get(fail=False) is None, "what is known is no gap"


async def test_a_gap_holds_up_its_own_run_only(
    bus: aio_pika.abc.AbstractChannel, fresh_rabbitmq: str, tmp_path: Path
) -> None:
    """What came after the gap is kept among the dead letters, in its order."""
    started, _, *later = order("order-1")

    with consumer(tmp_path, fresh_rabbitmq):
        await until_bound(tmp_path)
        await tell(bus, [started, *later, *order("order-2")])
        sales = await sold(tmp_path, handled=1)

    assert sales == [("order-2", 7800)]
    assert await dead_letters(bus, len(later)) == [event.id for event in later]


async def test_a_consumer_that_was_killed_goes_on_where_it_was(
    bus: aio_pika.abc.AbstractChannel, fresh_rabbitmq: str, tmp_path: Path
) -> None:
    """What happened meanwhile waits in its queue, and what it had in hand comes again."""
    runs = [order(f"order-{number}") for number in range(1, 4)]
    with consumer(tmp_path, fresh_rabbitmq):
        await until_bound(tmp_path)
        await tell(bus, runs[0] + runs[1][:2])
        await sold(tmp_path, handled=1)

    await tell(bus, runs[1][2:] + runs[2])
    with consumer(tmp_path, fresh_rabbitmq):
        sales = await sold(tmp_path, handled=3)

    assert sales == [(f"order-{number}", 7800) for number in range(1, 4)]
