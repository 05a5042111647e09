"""What a consumer holds is tied to its process, and to its heartbeat where that says nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tidewheel.broker.embedded import processes, queue_file
from tidewheel.broker.embedded.processes import is_known_dead, this_process
from tidewheel.broker.embedded.queue_file import BEAT_S, LEASE_S, QueueFile
from tidewheel.broker.topology import Queue

linux = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only the kernel's /proc tells")


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now_s = 1_000_000.0

    def __call__(self) -> float:
        """Return what it was set to."""
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    """A clock that stands still."""
    return Clock()


@pytest.fixture
def file(tmp_path: Path, clock: Clock) -> Iterator[QueueFile]:
    """A file with one queue and one message in it."""
    made = QueueFile(tmp_path / "queues.db", clock=clock)
    made.declare_queue(Queue(name="q"))
    made.publish(exchange="", keys=["q"], body=b"", envelope='{"headers": {}, "properties": {}}')
    yield made
    made.close()


def test_we_are_alive() -> None:
    """A process never takes itself for dead."""
    assert not is_known_dead(this_process())


@linux
def test_a_pid_that_is_used_again_is_somebody_else() -> None:
    """The same pid started at another time is not the process that we knew."""
    assert is_known_dead(replace(this_process(), started="1"))


@linux
def test_a_process_that_ended_is_dead_even_before_it_is_reaped() -> None:
    """A zombie holds nothing, though its pid is still taken."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    known = processes._state_and_start(process.pid)
    assert known is not None
    identity = replace(this_process(), pid=process.pid, started=known[1])
    assert not is_known_dead(identity)

    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    dead = is_known_dead(identity)

    process.communicate()
    assert dead


def test_nothing_is_known_of_another_machine() -> None:
    """A pid of another container, or of before a reboot, says nothing here."""
    assert not is_known_dead(replace(this_process(), realm="elsewhere", pid=2**22 + 1))
    assert not is_known_dead(replace(this_process(), realm="", started=""))


def test_a_silent_consumer_loses_what_it_holds(file: QueueFile, clock: Clock) -> None:
    """After the lease anybody gives it back, and the late word of the former holder is void."""
    silent, other = file.add_consumer("q"), file.add_consumer("q")
    assert silent
    assert other
    [held] = file.lease(silent, "q", batch_max=5)

    clock.now_s += LEASE_S - 1
    file.beat(other)
    file.sweep()
    assert file.depth("q") == 0
    clock.now_s += 2
    file.sweep()

    [again] = file.lease(other, "q", batch_max=5)
    file.acknowledge(silent, held.place)
    file.release(silent, held.place)
    file.bury(silent, held.place, "late")
    assert (again.place, again.deliveries) == (held.place, 2)
    assert file.lease(silent, "q", batch_max=5) == []
    assert not file.is_consumer(silent)
    file.release(other, again.place)
    assert file.depth("q") == 1


def test_a_consumer_that_was_taken_for_dead_gets_nothing_more(file: QueueFile) -> None:
    """It would hold it for ever, since nobody watches over it."""
    gone = file.add_consumer("q")
    assert gone
    file.remove_consumer(gone)

    assert file.lease(gone, "q", batch_max=5) == []
    assert file.depth("q") == 1


def test_heartbeats_come_often_enough() -> None:
    """Several may be missed before a consumer is taken for dead."""
    assert 4 * BEAT_S < LEASE_S


def test_a_sweep_with_nothing_to_do_does_not_write(file: QueueFile, tmp_path: Path) -> None:
    """Looking must not keep others from writing, nor wake them."""
    other = QueueFile(tmp_path / "queues.db")
    before = other.one("PRAGMA data_version")

    file.sweep()

    assert other.one("PRAGMA data_version") == before
    other.close()


def test_a_sweep_is_bounded(file: QueueFile, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue whose dead letters are due at once, in itself, does not hold the sweep for ever."""
    monkeypatch.setattr(queue_file, "SWEEP_BATCH_MAX", 1)
    file.declare_queue(Queue(name="loop", ttl_s=0.0, dead_letter_queue="loop"))
    file.publish(exchange="", keys=["loop"], body=b"", envelope='{"headers": {}, "properties": {}}')

    file.sweep()

    assert file.depth("loop") == 1
