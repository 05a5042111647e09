"""A consumer hears of what is written, whoever writes it, and nobody listens without need."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tidewheel.broker.embedded import wakeups
from tidewheel.broker.embedded.queue_file import QueueFile
from tidewheel.broker.topology import Queue

PATIENCE_S = 10.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with one queue."""
    made = tmp_path / "queues.db"
    with closing(QueueFile(made)) as file:
        file.declare_queue(Queue(name="q"))
    return made


@pytest.fixture
def bell(path: Path) -> Iterator[threading.Event]:
    """A bell for the file, which has rung for what was there before."""
    made = threading.Event()
    wakeups.listen(path, made)
    assert made.wait(PATIENCE_S)
    made.clear()
    yield made
    wakeups.stop_listening(path, made)


def test_what_somebody_else_writes_rings(path: Path, bell: threading.Event) -> None:
    """Another process tells nobody; its write is seen."""
    with closing(sqlite3.connect(path)) as stranger:
        stranger.execute("UPDATE queue SET used_at_s = 1")
        stranger.commit()

    assert bell.wait(PATIENCE_S)


def test_publishing_here_rings_before_it_returns(path: Path, bell: threading.Event) -> None:
    """Within a process nobody waits for the next poll."""
    with closing(QueueFile(path)) as file:
        file.publish(exchange="", keys=["q"], body=b"", envelope="{}")

        assert bell.is_set()


def test_a_file_nobody_listens_to_is_not_watched(path: Path, bell: threading.Event) -> None:
    """The watching thread ends with the last bell, and begins again with the next."""
    watcher = wakeups._watchers[path]

    wakeups.stop_listening(path, bell)
    wakeups.stop_listening(path, bell)
    watcher.join(PATIENCE_S)

    assert not watcher.is_alive()
    wakeups.listen(path, bell)
    assert bell.wait(PATIENCE_S)
