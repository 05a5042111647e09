"""Commands that cannot be followed, among a thousand that can: over RabbitMQ, to a worker on Postgres."""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any

from tests.scenario.messaging import read, shop_at_work
from tidewheel import SyncClient
from tidewheel.broker.message import JSON, KEY, ORIGIN, REASON, Message, Publication
from tidewheel.broker.opening import open_broker
from tidewheel.broker.topology import COMMANDS, commands_topology, dead_letter_queue
from tidewheel.store.records import RunRecord

GOOD = 1_000
#: Each kind comes so often, spread over the good ones.
TIMES = 4
PATIENCE_S = 120.0
PAGE = 1_000

#: The key, the body, and what the dead letter says.
BAD: dict[str, tuple[str, bytes | dict[str, Any], str]] = {
    "nothing": ("start", b"", "not a command, which is a JSON object"),
    "not JSON": ("start", b"\xff\xfe order 1001", "not a command, which is a JSON object"),
    "not an object": ("signal", b'["fulfil"]', "not a command, which is a JSON object"),
    "half": ("cancel", b'{"run_id": "good-1"', "not a command, which is a JSON object"),
    "deep": ("start", b'{"workflow": "fulfil", "input": ' + b"[" * 200_000, "recursion"),
    "huge": (
        "start",
        {"workflow": "fulfil", "input": ["x" * 5_000_000]},
        "the input of fulfil is 5,000,004 bytes",
    ),
    "a huge signal": (
        "signal",
        {"run_id": "good-1", "name": "go", "payload": "x" * 5_000_000},
        "payload of signal",
    ),
    "a long run id": ("start", {"workflow": "fulfil", "input": ["1"], "run_id": "r" * 5_000}, "run id 'rrr"),
    "a long request id": ("start", {"workflow": "fulfil", "request_id": "q" * 5_000}, "request_id 'qqq"),
    "a long workflow": ("start", {"workflow": "w" * 5_000}, "workflow 'www"),
    "a long namespace": ("cancel", {"run_id": "good-1", "namespace": "n" * 5_000}, "namespace 'nnn"),
    "a run id of another type": ("start", {"workflow": "fulfil", "run_id": 7}, r"`int` - at `\$.run_id`"),
    "an input of another type": ("start", {"workflow": "fulfil", "input": {}}, r"`object` - at `\$.input`"),
    "arguments of other types": (
        "start",
        {"workflow": "fulfil", "input": [1001]},
        r"input\[0\]: expected text",
    ),
    "too many arguments": ("start", {"workflow": "fulfil", "input": ["1", 2, 3]}, "3 arguments were given"),
    "a misspelt field": ("start", {"workflow": "fulfil", "inputs": []}, "unknown field `inputs`"),
    "a forgotten workflow": ("start", {"run_id": "good-1"}, "not a start command, though its key says so"),
    "another's key": ("cancel", {"workflow": "fulfil"}, "not a cancel command, though its key says so"),
    "a signal to nobody": ("signal", {"run_id": "nobody", "name": "go"}, "there is no run 'nobody'"),
    "a signal elsewhere": (
        "signal",
        {"run_id": "good-1", "name": "go", "namespace": "nowhere"},
        "there is no run 'good-1' in namespace 'nowhere'",
    ),
    "a cancel of nobody": ("cancel", {"run_id": "nobody"}, "there is no run 'nobody'"),
}
#: What no worker has is followed all the same: it may be deployed later.
AHEAD: dict[str, dict[str, Any]] = {
    "ahead-workflow": {"workflow": "not_yet", "input": [1], "run_id": "ahead-workflow"},
    "ahead-version": {"workflow": "fulfil", "input": [1], "run_id": "ahead-version", "version": "2"},
    "ahead-namespace": {"workflow": "fulfil", "run_id": "ahead-namespace", "namespace": "later"},
}


def command(key: str, body: bytes | dict[str, Any]) -> Publication:
    """Address a command as a stranger would: without an id of its own."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    message = Message(body=raw, message_id="", content_type=JSON)
    return Publication(message=message, exchange=COMMANDS, routing_key=key)


def mixed() -> list[Publication]:
    """All commands: the bad ones come singly among the good ones."""
    bad = [command(key, body) for _ in range(TIMES) for key, body, _ in BAD.values()]
    bad += [command("start", body) for body in AHEAD.values()]
    every = GOOD // len(bad)
    commands = []
    for number in range(GOOD):
        good = {"workflow": "fulfil", "input": [str(number), 100], "run_id": f"good-{number}"}
        commands.append(command("start", good))
        if number % every == 0 and bad:
            commands.append(bad.pop(0))
    return commands + bad


async def publish(broker: str, commands: list[Publication]) -> None:
    """Publish all, confirmed."""
    connected = open_broker(broker, store_url="")
    try:
        await connected.declare(commands_topology())
        await connected.publish(commands)
    finally:
        await connected.close()


def runs_of(client: SyncClient, count: int) -> list[RunRecord]:
    """Return all runs, once *count* of them have completed."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        completed = client.runs(status="COMPLETED", limit=PAGE)
        if len(completed) >= count:
            return [*completed, *client.runs(open_only=True, limit=PAGE)]
        assert time.monotonic() < deadline_s, f"{len(completed)} of {count} runs have completed"
        time.sleep(0.1)


def test_bad_commands_are_dead_letters_and_a_thousand_good_ones_complete(
    journals: str, fresh_rabbitmq: str, tmp_path: Path
) -> None:
    """Each says why and under which key it came; not one is followed, and not one is in the way."""
    asyncio.run(publish(fresh_rabbitmq, mixed()))

    with (
        shop_at_work(tmp_path, journals, fresh_rabbitmq),
        SyncClient.connect(journals, fresh_rabbitmq) as client,
        SyncClient.connect(journals, fresh_rabbitmq, "later") as later,
    ):
        runs = runs_of(client, GOOD)
        dead = read(fresh_rabbitmq, dead_letter_queue(COMMANDS), TIMES * len(BAD))
        statuses = {run.run_id: run.status for run in runs}
        elsewhere = [run.run_id for run in later.runs()]

    assert statuses == {f"good-{number}": "COMPLETED" for number in range(GOOD)} | {
        "ahead-workflow": "RUNNING",
        "ahead-version": "RUNNING",
    }
    assert elsewhere == ["ahead-namespace"]
    told = {(letter.headers[KEY], bytes(letter.body)): letter.headers[REASON] for letter in dead}
    for what, (key, body, reason) in BAD.items():
        said = told[key, command(key, body).message.body]
        assert re.search(reason, said), f"{what}: {said}"
    assert len(told) == len(BAD)
    assert {letter.headers[ORIGIN] for letter in dead} == {COMMANDS}
