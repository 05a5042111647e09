"""The publishers of ``docs/commands.md``: complete programs, run against RabbitMQ and a worker.

What Go's does is not tried here; that it is well formed is, where ``gofmt`` is installed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika  # type: ignore[import-untyped]  # no types
import pytest

from tests.examples.node_modules import NoNode, find_node
from tests.examples.test_documentation import ROOT, blocks
from tests.examples.web_shops import eventually, working_on
from tidewheel import SyncClient
from tidewheel.broker.topology import COMMANDS

PATIENCE_S = 60.0
Publish = Callable[[str], subprocess.CompletedProcess[str]]

pytestmark = [
    pytest.mark.skipif(
        not (ROOT / "Makefile").exists(), reason="an unpacked sdist has no folders at the root"
    ),
    # On a host without Node the first of them waits for its packages.
    pytest.mark.timeout(1_200),
]


def shown(name: str) -> str:
    """Return the block that the page saves as *name*."""
    page = (ROOT / "docs" / "commands.md").read_text("utf-8")
    (text,) = [block.text for block in blocks(page) if block.directives.get("file") == name]
    return text


@pytest.fixture(params=["python", "node"])
def publish(request: pytest.FixtureRequest, tmp_path: Path) -> Publish:
    """The program of the page in each language; it is given the URL of RabbitMQ, and nothing else."""
    name = "start_order.py" if request.param == "python" else "start_order.js"
    program = tmp_path / name
    program.write_text(shown(name), "utf-8")
    if request.param == "node":
        try:
            node = find_node()
        except NoNode as problem:
            pytest.skip(f"NOT TESTED, that the publisher for Node works: {problem}")
        return lambda broker: node.run(program, TIDEWHEEL_BROKER=broker)
    return lambda broker: subprocess.run(
        [sys.executable, program],
        env={"PATH": os.defpath, "TIDEWHEEL_BROKER": broker},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=PATIENCE_S,
        check=False,
    )


@contextmanager
def channel_to(broker: str) -> Iterator[Any]:
    """A channel of pika's, which shows a message as RabbitMQ has it."""
    with pika.BlockingConnection(pika.URLParameters(broker)) as connection:
        yield connection.channel()


def test_a_publisher_starts_one_run_which_completes(
    publish: Publish, journals: str, fresh_rabbitmq: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often it is run: its request has an id. A worker of the page's own app executes the run."""
    monkeypatch.setenv("TIDEWHEEL_STORE", journals)
    monkeypatch.setenv("TIDEWHEEL_BROKER", fresh_rabbitmq)
    (tmp_path / "orders.py").write_text(shown("orders.py"), "utf-8")
    with working_on("orders.py:app", tmp_path), SyncClient.connect() as client:
        said = [publish(fresh_rabbitmq) for _ in range(3)]
        eventually(lambda: len(client.runs()), 1)
        (run,) = client.runs()
        client.handle(run.run_id).signal("approval", True)
        result = client.handle(run.run_id).result(timeout=PATIENCE_S)
        with channel_to(fresh_rabbitmq) as channel:
            eventually(lambda: channel.queue_declare(COMMANDS, passive=True).method.message_count, 0)
            dead = channel.queue_declare(f"{COMMANDS}.dlq", passive=True).method.message_count
        kept = len(client.runs())

    assert [(done.returncode, done.stdout) for done in said] == [(0, "")] * 3
    assert (run.workflow, kept, dead) == ("fulfil", 1, 0)
    assert result in ("1002 is paid", "1003 is paid")


def test_what_a_publisher_sends_is_persistent_json_with_the_id_of_a_request(
    publish: Publish, fresh_rabbitmq: str
) -> None:
    """A start that a restart of RabbitMQ does not lose, under its key."""
    with channel_to(fresh_rabbitmq) as channel:
        channel.exchange_declare(COMMANDS, "direct", durable=True)
        channel.queue_declare("seen")
        channel.queue_bind("seen", COMMANDS, "start")

        done = publish(fresh_rabbitmq)

        method, properties, body = channel.basic_get("seen")
    sent = json.loads(body)
    assert (done.returncode, done.stdout) == (0, "")
    assert (method.routing_key, properties.delivery_mode) == ("start", 2)
    assert properties.content_type == "application/json"
    assert (sent["workflow"], sorted(sent)) == ("fulfil", ["input", "request_id", "workflow"])


@pytest.mark.parametrize("is_declared", [True, False], ids=["no queue", "no exchange"])
def test_a_publisher_fails_where_nobody_keeps_the_command(
    publish: Publish, fresh_rabbitmq: str, is_declared: bool
) -> None:
    """As before the first worker ran: nothing is lost without anybody noticing."""
    if is_declared:
        with channel_to(fresh_rabbitmq) as channel:
            channel.exchange_declare(COMMANDS, "direct", durable=True)

    done = publish(fresh_rabbitmq)

    assert done.returncode != 0
    assert done.stdout


def test_the_publisher_for_go_is_formatted_as_gofmt_does_and_nothing_else_of_it_is_checked(
    tmp_path: Path,
) -> None:
    """Which it cannot be if it is no Go; it is neither compiled nor run."""
    gofmt = shutil.which("gofmt")
    if gofmt is None:
        pytest.skip("NOT TESTED, that the publisher for Go can be read: there is no gofmt here")
    program = tmp_path / "start_order.go"
    program.write_text(shown(program.name), "utf-8")

    done = subprocess.run([gofmt, "-d", program], capture_output=True, encoding="utf-8", check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
