"""Runs a command with servers, and ends them whatever happens to it.

The command is in a process group of its own. SIGINT, SIGTERM and SIGHUP are handed on to that group; one that
comes while the servers start takes effect when they have started, so nothing is left half made. The exit code
is the command's. Should this process itself be killed, guardians end the servers and the command.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType

from tests.servers.guardian import Guardian
from tests.servers.packages import tell
from tests.servers.places import ServerTrouble
from tests.servers.provision import offers

_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: What a shell adds to the number of the signal that ended a command.
_BY_SIGNAL = 128
_NO_SERVER = 1


def run(command: Sequence[str], wanted: Sequence[str]) -> int:
    """Run *command* with the servers that are *wanted*, by their names, and return its exit code."""
    ended = time.monotonic()
    with _errand() as errand:
        with ExitStack() as servers:
            code = _run(command, wanted, errand, servers)
            ended = time.monotonic()
        tell(f"stopped ({time.monotonic() - ended:.1f} s)")
    return code


def _run(command: Sequence[str], wanted: Sequence[str], errand: _Errand, servers: ExitStack) -> int:
    variables: dict[str, str] = {}
    for name in wanted:
        began = time.monotonic()
        try:
            provided = servers.enter_context(offers(os.environ)[name](tell))
        except ServerTrouble as trouble:
            tell(str(trouble))
            return _NO_SERVER
        tell(f"{provided.what} ({time.monotonic() - began:.1f} s)")
        variables |= provided.variables
        if errand.signal is not None:
            return _BY_SIGNAL + errand.signal
    return errand.run(command, variables)


class _Errand:
    """The command, and the signal that came, if one came."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def interrupt(self, number: int, _frame: FrameType | None) -> None:
        """Hand a signal on to the command, or keep it until there would be one."""
        self.signal = number
        if self._process is not None:
            _signal_group(self._process.pid, number)

    def run(self, command: Sequence[str], variables: Mapping[str, str]) -> int:
        """Run *command* to its end."""
        guardian = Guardian()
        try:
            process = subprocess.Popen(command, env={**os.environ, **variables}, process_group=0)
        except OSError as problem:
            tell(f"cannot run {command[0]}: {problem.strerror}")
            guardian.release()
            return 127 if isinstance(problem, FileNotFoundError) else 126
        try:
            guardian.watch(process.pid)
            self._process = process
            if self.signal is not None:
                _signal_group(process.pid, self.signal)
            code = process.wait()
        finally:
            # What the command left running would keep the servers' folders busy.
            _signal_group(process.pid, signal.SIGKILL)
            process.wait()
            guardian.release()
        return _BY_SIGNAL - code if code < 0 else code


@contextmanager
def _errand() -> Iterator[_Errand]:
    """An errand that hears the signals meant for this process."""
    errand = _Errand()
    before = {number: signal.signal(number, errand.interrupt) for number in _FORWARDED}
    yield errand
    for number, handler in before.items():
        signal.signal(number, handler)


def _signal_group(leader: int, number: int) -> None:
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):
        return
