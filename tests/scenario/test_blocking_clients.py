"""Blocking clients on Postgres and RabbitMQ: with a worker, and in processes that fork."""

from __future__ import annotations

import concurrent.futures
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.web_shops import ROOT, working_on
from tidewheel import SyncClient
from tidewheel.sdk import ending

WORKFLOWS = "examples.flask_shop.workflows:app"
KETTLE = {"item": "kettle", "cents": 7800}
PATIENCE_S = 60.0

pytestmark = pytest.mark.skipif(not (ROOT / "examples").is_dir(), reason="an unpacked sdist has no examples")

#: Forks while the parent's client is connected, and ends each child as a server would: with its finalizers.
FORKING = """
import os, sys
from tidewheel import InvalidRequest, SyncClient

client = SyncClient.connect(sys.argv[1], sys.argv[2])
client.listen()
first = client.start("add", 0)

def serve(number: int) -> None:
    assert client.start("add", number, run_id=f"child-{number}").status() == "RUNNING"
    assert client.listen()
    try:
        first.status()
    except InvalidRequest as refusal:
        assert "made before a fork" in str(refusal)
    else:
        raise AssertionError
    assert client.handle(first.run_id).status() == "RUNNING"

children = []
for number in range(3):
    child = os.fork()
    if not child:
        serve(number)
        if number:
            client.close()
        sys.exit(0)
    children.append(child)
    client.start("add", number, run_id=f"parent-{number}")
for child in children:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert first.status() == "RUNNING"
client.start("add", 4)
print(len(client.runs()), client.listen())
client.close()
"""


def test_a_client_that_was_used_before_a_fork_is_used_after_it_in_both_processes(
    journals: str, fresh_rabbitmq: str
) -> None:
    """Each process has connections of its own: none is shared, and none is closed behind the other's back."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING, journals, fresh_rabbitmq],
        env=os.environ.copy(),
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "8 True\n"
    assert done.stderr == ""


def test_threads_that_wait_for_results_are_told_over_the_clients_own_queue(
    journals: str, fresh_rabbitmq: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody looks at the store in this test: every result comes because a worker said so."""
    monkeypatch.setattr(ending, "LOOK_FIRST_S", 10 * PATIENCE_S)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("TIDEWHEEL_STORE", journals)
    monkeypatch.setenv("TIDEWHEEL_BROKER", fresh_rabbitmq)

    def fulfilled(number: int) -> str:
        run = client.start("fulfil", KETTLE, run_id=f"order-{number}")
        run.signal("approval", True)
        return str(run.result(timeout=PATIENCE_S))

    with (
        working_on(WORKFLOWS, tmp_path),
        SyncClient.connect() as client,
        concurrent.futures.ThreadPoolExecutor(8) as pool,
    ):
        results = list(pool.map(fulfilled, range(40)))

    assert results == ["shipped: payment of 7800 for a kettle"] * 40
