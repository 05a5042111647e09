"""The processes in which a worker executes tasks that ask for one.

A process executes one task at a time and is used again. One that dies takes only its own attempt along; one
whose attempt is given up, by a timeout or because nobody wants its result, is killed: that is what a
thread cannot be. They are started when they are first needed, and end with the worker, however it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from tidewheel.journal import events as ev
from tidewheel.workers.leash import Leash
from tidewheel.workers.task_places import TASK_PROCESS
from tidewheel.workers.task_wire import (
    Beat,
    Call,
    Done,
    Log,
    Module,
    Prepare,
    Ready,
    framed,
    read_from_process,
)

logger = logging.getLogger("tidewheel.workers")

#: The error of an attempt whose process ended before it had a result.
PROCESS_DIED: Final = "ProcessDied"
#: A process that is not ready by then is given up: an app may take long to be imported.
START_TIMEOUT_S: Final = 120.0
#: How long an idle process may take to end.
END_TIMEOUT_S: Final = 1.0


class ProcessFailed(Exception):
    """The process cannot execute the attempt, or has died with it; ``error`` says how."""

    def __init__(self, error: ev.Error) -> None:
        super().__init__(error.message)
        self.error = error


class TaskProcess:
    """One process; made by ``start``."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        leash: Leash,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._leash = leash
        self._reader = reader
        self._writer = writer
        #: Whether it waits for a call; one that does not is no use to anybody else.
        self.is_idle = False

    @classmethod
    async def start(cls, prepare: Prepare) -> TaskProcess:
        """Start a process and return it when it can execute calls."""
        leash = Leash()
        mine, theirs = socket.socketpair()
        try:
            with theirs:
                process = await _spawn(leash, theirs)
            leash.handed_over()
            reader, writer = await asyncio.open_connection(sock=mine)
        except BaseException:
            leash.close()  # which ends the process, if there is one
            mine.close()
            raise
        made = cls(process, leash, reader, writer)
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await made._prepare(prepare)
        except TimeoutError:
            await made.kill()
            message = f"its process was not ready within {START_TIMEOUT_S:g} s"
            raise ProcessFailed(ev.Error(type=PROCESS_DIED, message=message, retryable=True)) from None
        except BaseException:
            await made.kill()
            raise
        return made

    async def _prepare(self, prepare: Prepare) -> None:
        await self._send(framed(prepare))
        ready = await self._next(lambda _details: None)
        assert isinstance(ready, Ready)
        if ready.error is not None:
            message = f"its process could not import the app: {ready.error.type}: {ready.error.message}"
            raise ProcessFailed(ev.Error(type=ready.error.type, message=message, retryable=True))
        self.is_idle = True

    @property
    def is_alive(self) -> bool:
        """Whether the process has not ended, as far as is known."""
        return self._process.returncode is None

    async def execute(self, call: Call, on_beat: Callable[[Any], None]) -> ev.Result:
        """Execute *call*; raises ``ProcessFailed`` where the process dies with it."""
        assert self.is_idle
        self.is_idle = False
        await self._send(framed(call))
        done = await self._next(on_beat)
        assert isinstance(done, Done)
        self.is_idle = True
        return done.result

    async def _send(self, frame: bytes) -> None:
        try:
            self._writer.write(frame)
            await self._writer.drain()
        except OSError:
            raise ProcessFailed(await self._obituary()) from None

    async def _next(self, on_beat: Callable[[Any], None]) -> Ready | Done:
        while True:
            try:
                said = await read_from_process(self._reader)
            except EOFError:
                raise ProcessFailed(await self._obituary()) from None
            match said:
                case Beat(details):
                    on_beat(details)
                case Log():
                    _log(said)
                case _:
                    return said

    async def _obituary(self) -> ev.Error:
        """Say how the process ended."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_TIMEOUT_S):
                await self._process.wait()
        self.signal_all()  # if it has not ended, it still no longer speaks to us
        code = await self._process.wait()
        how = f"ended with exit code {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"
        if code == -signal.SIGKILL:
            how += "; did it need more memory than there is?"
        return ev.Error(type=PROCESS_DIED, message=f"the process that executed it {how}", retryable=True)

    def signal_all(self) -> None:
        """Kill the process, and what its task has started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def kill(self) -> None:
        """End it now, whatever it executes."""
        self.signal_all()
        await self._process.wait()
        self._leash.close()
        self._writer.transport.abort()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def close(self) -> None:
        """Let an idle process end."""
        self._writer.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_TIMEOUT_S):
                await self._process.wait()
        await self.kill()


async def _spawn(leash: Leash, theirs: socket.socket) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", TASK_PROCESS,
        str(os.getpid()), str(leash.child_end), str(theirs.fileno()),
        stdin=asyncio.subprocess.DEVNULL,
        pass_fds=(leash.child_end, theirs.fileno()),
        # Its own group: it is killed with all that its task has started. (uvloop knows no process_group.)
        start_new_session=True,
    )  # fmt: skip


class TaskPool:
    """At most *size* processes, each lent to one attempt at a time."""

    def __init__(self, size: int, *, home: Module | None, result_max_bytes: int) -> None:
        self.size = size
        self._home = home
        self._result_max_bytes = result_max_bytes
        self._idle: list[TaskProcess] = []
        self._ending: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def process(self) -> AsyncIterator[TaskProcess]:
        """Lend a process; one that is given back in the middle of a call is killed.

        Not more than *size* may be lent at a time: that is for the caller to see to.
        """
        process = await self._take()
        try:
            yield process
        finally:
            if process.is_idle:
                self._idle.append(process)
            else:
                self._see_off(process)

    async def _take(self) -> TaskProcess:
        while self._idle:
            process = self._idle.pop()
            if process.is_alive:
                return process
            self._see_off(process)
        return await TaskProcess.start(self._prepare())

    def _prepare(self) -> Prepare:
        return Prepare(
            path=list(sys.path),
            home=self._home,
            result_max_bytes=self._result_max_bytes,
            log_level=logging.getLogger().getEffectiveLevel(),
            keeps_stdout=sys.stdout is sys.stderr,
        )

    def _see_off(self, process: TaskProcess) -> None:
        """Kill *process*, without making anybody wait for its end."""
        process.signal_all()
        task = asyncio.create_task(process.kill(), name="tidewheel-task-process-end")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """End all processes. None is lent any more."""
        idle, self._idle = self._idle, []
        await asyncio.gather(*(process.close() for process in idle), *self._ending)


def _log(said: Log) -> None:
    named = logging.getLogger(said.name)
    if named.isEnabledFor(said.level):
        message = said.message if said.trace is None else f"{said.message}\n{said.trace.rstrip()}"
        named.log(said.level, "%s", message, extra={"fields": said.fields})
