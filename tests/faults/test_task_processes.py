"""Tasks with a process of their own: it can die, be killed, and end with its worker; it harms nobody else."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.faults.audit import journal_findings
from tests.faults.crunching import (
    crunches,
    dies_beside,
    fails,
    falls_silent,
    gives_up,
    grinds,
    outlasts,
    waits,
    waits_far,
)
from tests.faults.ledger import Line, repeated_attempts
from tests.faults.place import Place, eventually
from tidewheel.journal import events as ev
from tidewheel.workers.lifeline import process_began


def is_alive(pid: int) -> bool:
    """Tell whether there is such a process, and it has not ended."""
    return bool(process_began(pid))


async def the_pid(place: Place, name: str) -> int:
    """Return the process that executes a body, once it does."""
    lines: list[Line] = await eventually(lambda: place.ledger.of(name), f"the start of {name}")
    return lines[-1].pid


async def has_ended(pid: int) -> None:
    """Return when the process has ended."""
    await eventually(lambda: not is_alive(pid), f"the end of process {pid}")


async def test_a_task_in_a_process_knows_its_step(place: Place) -> None:
    """Processes are used again, and are at most as many as allowed; what they log is in the worker's log."""
    worker = await place.serve(task_processes=2)
    handle = await place.client.start(crunches, str(place.folder), 12, run_id="many")

    told = await handle.result(timeout=60)

    pids = {one["pid"] for one in told}
    assert [(one["key"], one["attempt"], one["run_id"]) for one in told] == [
        (f"many:{number}", 1, "many") for number in range(12)
    ]
    assert worker.pid not in pids
    assert 1 <= len(pids) <= 2
    assert "crunching c11" in worker.said()
    assert list(journal_findings(place.folder)) == []


@pytest.mark.parametrize(
    ("how", "said"),
    [("exit", "ended with exit code 3"), ("SIGKILL", "was ended by SIGKILL"), ("SIGSEGV", "SIGSEGV")],
)
async def test_a_process_that_dies_takes_only_its_own_attempt_along(
    place: Place, how: str, said: str
) -> None:
    """The attempt fails by a name of its own and is retried with its heartbeat; its neighbour goes on."""
    await place.serve(task_processes=2)
    handle = await place.client.start(dies_beside, str(place.folder), how, run_id="dies")

    result = await handle.result(timeout=60)

    errors = [
        entry.event.error
        for entry in await place.journal("dies")
        if isinstance(entry.event, ev.InvokeRetrying)
    ]
    assert result == [{"done": 7}, "beside"]
    assert [(error.type, error.retryable) for error in errors] == [("ProcessDied", True)]
    assert said in errors[0].message
    assert [line.attempt for line in place.ledger.of("dies")] == [1, 2]
    assert [line.attempt for line in place.ledger.of("beside")] == [1]
    assert list(journal_findings(place.folder)) == []


@pytest.mark.parametrize(
    ("how", "result"),
    [
        ("class", "TooHard('by far', 17)"),
        ("exit", "SystemExit: enough"),
        ("result", "InvalidRequest: result of fail_by: builtins.object is not a payload type"),
        ("3000000", "InvalidRequest: the result of fail_by is 3,000,002 bytes"),
    ],
)
async def test_a_task_in_a_process_fails_as_any_other(place: Place, how: str, result: str) -> None:
    """By its exception, and not its process; a class in ``raises`` arrives as itself."""
    await place.serve(task_processes=1)

    told = await (await place.client.start(fails, how)).result(timeout=60)

    assert told.startswith(result)


async def test_a_timeout_kills_the_process_and_what_it_started(place: Place) -> None:
    """What a thread cannot be: ended. The next task gets another process."""
    await place.serve(task_processes=1)
    handle = await place.client.start(outlasts, str(place.folder), "endless")
    pid = await the_pid(place, "endless")
    child = int(await eventually(lambda: _text(place.folder / "endless.child")))

    result = await handle.result(timeout=60)

    assert result == "TimeoutError: never_end did not finish within 1 s"
    await has_ended(pid)
    await has_ended(child)
    (told,) = await (await place.client.start(crunches, str(place.folder), 1)).result(timeout=60)
    assert told["pid"] != pid


async def test_a_process_that_falls_silent_is_killed(place: Place) -> None:
    """Heartbeats reach the worker from there; when they stop, so does the attempt."""
    await place.serve(task_processes=1)

    result = await (await place.client.start(falls_silent)).result(timeout=60)

    assert result == "TimeoutError: fall_silent did not send a heartbeat for 0.3 s"


async def test_a_step_that_the_code_gave_up_on_is_killed(place: Place) -> None:
    """Nobody wants its result: it does not go on using the CPU."""
    await place.serve(task_processes=1)
    handle = await place.client.start(gives_up, str(place.folder), "unwanted")
    pid = await the_pid(place, "unwanted")

    result = await handle.result(timeout=60)

    assert result == "given up"
    await has_ended(pid)


@pytest.mark.parametrize("workflow", [waits, waits_far])
async def test_a_worker_that_stops_lets_its_processes_finish(place: Place, workflow: Any) -> None:
    """Within its grace; the signal to stop is not for them, though all processes of a group may get it."""
    worker = await place.serve(grace_s=30.0, task_processes=1)
    handle = await place.client.start(workflow, str(place.folder), "held", run_id="held")
    pid = await the_pid(place, "held")

    worker.send(signal.SIGTERM)
    os.kill(pid, signal.SIGTERM)
    os.kill(pid, signal.SIGINT)
    await eventually(lambda: "stopping" in worker.said(), "the drain's start")
    place.let("held")
    code = await worker.code()

    assert code == 0, worker.said()
    await has_ended(pid)
    await place.serve()
    assert await handle.result(timeout=60) == "held"
    assert len(place.ledger.of("held")) == 1


@pytest.mark.parametrize("workflow", [waits, waits_far])
async def test_what_outlasts_the_grace_is_killed_and_handed_back(place: Place, workflow: Any) -> None:
    """The worker ends well, its process is gone, and another worker makes the next attempt at once."""
    worker = await place.serve(grace_s=0.2, task_processes=1)
    handle = await place.client.start(workflow, str(place.folder), "held", run_id="held")
    pid = await the_pid(place, "held")

    worker.send(signal.SIGTERM)
    code = await worker.code()

    assert code == 0, worker.said()
    assert not is_alive(pid)
    place.let("held")
    await place.serve()
    assert await handle.result(timeout=60) == "held"
    assert [line.attempt for line in place.ledger.of("held")] == [1, 2]
    assert repeated_attempts(place.ledger.lines()) == []
    assert list(journal_findings(place.folder)) == []


@pytest.mark.parametrize("workflow", [waits, grinds])
async def test_a_killed_worker_leaves_no_process_behind(place: Place, workflow: Any) -> None:
    """Also where the task computes in C, and no thread of its process gets on."""
    worker = await place.serve(task_processes=1)
    await place.client.start(workflow, str(place.folder), "held")
    pid = await the_pid(place, "held")

    worker.send(signal.SIGKILL)

    await has_ended(pid)


def _text(file: Path) -> str:
    return file.read_text("utf-8") if file.exists() else ""
