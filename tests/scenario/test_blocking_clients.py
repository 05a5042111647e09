"""Blocking clients on Postgres and RabbitMQ, in processes that fork."""

from __future__ import annotations

import os
import subprocess
import sys

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
