"""A process that forks others from itself: it has imported everything, and has no thread and no loop.

``python -m tests.faults.forking MODULE...`` imports what children need, which takes longer than most of them
live. Then it reads requests from standard input and answers on standard output, one line of JSON each. A
child calls one function and ends; what the function returns goes into a file. All processes share one group,
so that whoever started this one can end them all.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def call(function: str, arguments: dict[str, Any]) -> Any:
    """Call ``package.module:name``."""
    module, _, name = function.partition(":")
    return getattr(importlib.import_module(module), name)(**arguments)


def fork(function: str, arguments: dict[str, Any], log: Path) -> int:
    """Call *function* in a child of this process, its output in *log*, its answer beside; return the pid."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        written = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, replacement in ((0, nothing), (1, written), (2, written)):
            os.dup2(replacement, number)
        answer = call(function, arguments)
        answer_file(log).write_text(json.dumps(answer), encoding="utf-8")
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:  # noqa: BLE001 - it is in the log, and the code tells
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def wait(pid: int) -> int:
    """Wait for a child of this process, and return how it ended: negative, the signal."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def answer_file(log: Path) -> Path:
    """Return where the answer of the child that writes to *log* is."""
    return log.with_suffix(".answer")


def _serve(preloaded: Sequence[str]) -> None:
    for module in preloaded:
        importlib.import_module(module)
    heard, woken = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(heard, False)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    children: dict[int, int] = {}
    unread = b""
    _say({"ready": os.getpid()})
    while True:
        ready, _, _ = select.select([0, heard], [], [])
        if heard in ready:
            os.read(heard, 4096)
            _reap(children)
        if 0 in ready:
            read = os.read(0, 65_536)
            if not read:
                # Whoever started this one is gone, perhaps killed: nothing of it may stay.
                os.killpg(os.getpgrp(), signal.SIGKILL)
            *lines, unread = (unread + read).split(b"\n")
            for line in lines:
                request = json.loads(line)
                pid = fork(request["function"], request["arguments"], Path(request["log"]))
                children[pid] = request["number"]
                _say({"number": request["number"], "pid": pid})


def _reap(children: dict[int, int]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        _say({"number": children.pop(pid), "code": os.waitstatus_to_exitcode(status)})


def _say(answer: dict[str, int]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _serve(sys.argv[1:])
