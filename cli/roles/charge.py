"""One child process of a supervisor: started, heard of, told to stop.

The child is this very command, for one role. It says how it is over a pipe, a line of JSON each time. That
comes often, so a line that cannot be written at once is dropped, and none is longer than what the
system writes in one piece; but for the first one that says that everything works.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from tidewheel.cli.failure import Failure
from tidewheel.cli.roles.banner import Contents
from tidewheel.workers.leash import Leash, end_with_parent

#: How often a child says how it is.
REPORT_S: Final = 1.0
#: No line is longer, not even the one with everything an app has.
LINE_MAX_BYTES: Final = 1024 * 1024


class Reported(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a child says of itself."""

    #: Whether everything is started, and what its app has: said once.
    works: bool = False
    contents: Contents | None = None
    #: What is wrong, by check; what is not there is well.
    wrong: dict[str, str] = {}


class Charge:
    """The child called *name*; *arguments* are those of the command. It is asked how it is if *looks*."""

    def __init__(self, name: str, arguments: Sequence[str], *, looks: bool) -> None:
        self.name = name
        self._arguments = list(arguments)
        self._looks = looks
        self._is_told = False
        self._process: asyncio.subprocess.Process | None = None
        self.began_at = 0.0
        self.heard_at: float | None = None
        #: Whether it works now, and whether it ever did since it was last started.
        self.works = False
        self.has_worked = False
        self.contents: Contents | None = None
        self.wrong: dict[str, str] = {}

    @property
    def pid(self) -> int:
        """The process; 0 while there is none."""
        return 0 if self._process is None else self._process.pid

    async def live(self, on_works: Callable[[], None]) -> int:
        """Start the process, hear of it until it ends, and return its exit code; negative, the signal."""
        loop = asyncio.get_running_loop()
        leash = Leash()
        reports, said = os.pipe()
        try:
            process = await self._spawn(leash, said)
        except BaseException:
            leash.close()
            os.close(reports)
            raise
        finally:
            os.close(said)
        leash.handed_over()
        self._process, self.began_at, self.heard_at = process, loop.time(), None
        self.has_worked = False
        if self._is_told:  # while it was being started
            self.kill(signal.SIGTERM)
        listening = asyncio.create_task(self._listen(reports, on_works), name=f"listen-{self.name}")
        try:
            return await process.wait()
        finally:
            leash.close()
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
            self._process, self.works, self.wrong = None, False, {}

    async def _spawn(self, leash: Leash, said: int) -> asyncio.subprocess.Process:
        link = f"{self.name}:{os.getpid()}:{leash.child_end}:{said}:{self._looks:d}"
        return await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "tidewheel.cli.main", *self._arguments, "--supervised", link,
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=(leash.child_end, said),
            process_group=0,  # Ctrl-C is for the supervisor, which tells its children
        )  # fmt: skip

    async def _listen(self, reports: int, on_works: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=LINE_MAX_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await loop.connect_read_pipe(lambda: protocol, os.fdopen(reports, "rb", 0))
        try:
            while line := await reader.readline():
                with contextlib.suppress(msgspec.MsgspecError):
                    self._hear(msgspec.json.decode(line, type=Reported), on_works)
        finally:
            transport.close()

    def _hear(self, said: Reported, on_works: Callable[[], None]) -> None:
        self.heard_at = asyncio.get_running_loop().time()
        self.wrong = said.wrong
        if said.works:
            self.works = self.has_worked = True
            self.contents = said.contents
            on_works()

    def stop(self) -> None:
        """Tell the process to stop, and any that is started from now on."""
        self._is_told = True
        self.kill(signal.SIGTERM)

    def kill(self, number: signal.Signals) -> None:
        """Send the process a signal, if there is one."""
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)  # not by the object: it would take the exit code from asyncio


class Link:
    """The child's end: it lives as long as its supervisor, and says how it is."""

    def __init__(self, name: str, said: int, *, looks: bool) -> None:
        self.name = name
        #: Whether anybody wants to know if this process can work.
        self.looks = looks
        self._said = said

    @classmethod
    def hold(cls, text: str) -> Link:
        """Take what ``--supervised`` says, and end with the supervisor from now on."""
        try:
            name, *numbers = text.split(":")
            parent, child_end, said, looks = map(int, numbers)
        except ValueError:
            message = "--supervised is what a supervisor says to its children"
            raise Failure.invalid(message, "say --processes to have one") from None
        end_with_parent(child_end, parent)
        os.set_inheritable(said, False)
        os.set_blocking(said, False)
        return cls(name, said, looks=bool(looks))

    def report(self, wrong: Mapping[str, str]) -> None:
        """Say how this process is; if nobody can hear it now, the next time will do."""
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(self._said, _fitting(wrong))

    def announce(self, contents: Contents | None) -> None:
        """Say that everything works. Blocks until it was heard."""
        os.set_blocking(self._said, True)
        with contextlib.suppress(BrokenPipeError):
            os.write(self._said, _line(Reported(works=True, contents=contents)))
        os.set_blocking(self._said, False)


def _fitting(wrong: Mapping[str, str]) -> bytes:
    """Return a report of what is wrong, cut short where it would not be written in one piece."""
    line = _line(Reported(wrong=dict(wrong)))
    if len(line) <= select.PIPE_BUF:
        return line
    room = select.PIPE_BUF // (16 * len(wrong))
    return _line(Reported(wrong={name[:room]: f"{found[:room]}..." for name, found in wrong.items()}))


def _line(said: Reported) -> bytes:
    return msgspec.json.encode(said) + b"\n"
