"""What a worker and its task processes say to each other: JSON in frames, over a socket of their own.

Nothing is pickled: arguments and results are the payloads that the journal has, and a function is
named by where it is imported from.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from tidewheel.journal import events as ev
from tidewheel.telemetry.context import TraceContext

#: A frame that claims to be longer comes from a process that does not speak our language.
FRAME_MAX_BYTES: Final = 1 << 30
_LENGTH_BYTES: Final = 4


class Module(msgspec.Struct, frozen=True):
    """A module as another process finds it: by its name, or where that leads elsewhere by its file."""

    name: str
    file: str | None


class Place(msgspec.Struct, frozen=True):
    """Where a function is: a module, and the name in it."""

    module: Module
    qualname: str


class Prepare(msgspec.Struct, frozen=True, kw_only=True, tag="prepare"):
    """What a process is to be like before it executes anything."""

    #: ``sys.path`` of the worker.
    path: list[str]
    #: Imported first, as the worker did.
    home: Module | None
    result_max_bytes: int
    log_level: int
    #: Standard output belongs to the worker's log: what tasks print goes to standard error.
    keeps_stdout: bool


class Call(msgspec.Struct, frozen=True, kw_only=True, tag="call"):
    """One attempt to execute."""

    place: Place
    task: str
    input: list[Any]
    run_id: str
    attempt: int
    idempotency_key: str
    last_heartbeat: Any = None
    #: Where in a trace it is, if telemetry is on.
    trace: TraceContext | None = None


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The process can execute calls; or it cannot, and says why."""

    error: ev.Error | None = None


class Beat(msgspec.Struct, frozen=True, tag="beat"):
    """The body of the call says that it is alive."""

    details: Any


class Log(msgspec.Struct, frozen=True, kw_only=True, tag="log"):
    """A log record of the process."""

    name: str
    level: int
    message: str
    trace: str | None = None
    #: Which run, step and attempt it was written in, and where in a trace.
    fields: dict[str, Any] = {}


class Done(msgspec.Struct, frozen=True, tag="done"):
    """What the call came to."""

    result: ev.Result


ToProcess: TypeAlias = Prepare | Call
FromProcess: TypeAlias = Ready | Beat | Log | Done

_encode = msgspec.json.Encoder().encode
_decode_to: Callable[[bytes], ToProcess] = msgspec.json.Decoder(ToProcess).decode
_decode_from: Callable[[bytes], FromProcess] = msgspec.json.Decoder(FromProcess).decode


def framed(message: ToProcess | FromProcess) -> bytes:
    """Return *message* as it is sent."""
    body = _encode(message)
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


async def read_from_process(reader: asyncio.StreamReader) -> FromProcess:
    """Read one message of a process; ``EOFError`` where it ends, or says what nobody understands."""
    try:
        length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
        if length > FRAME_MAX_BYTES:
            raise EOFError
        return _decode_from(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, OSError, msgspec.MsgspecError) as problem:
        raise EOFError(str(problem)) from problem


class ProcessEnd:
    """The process's end of the socket. Any of its threads may write."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._reader = connection.makefile("rb")
        self._writing = threading.Lock()

    def read(self) -> ToProcess | None:
        """Wait for the next message; None when the worker has let go."""
        head = self._reader.read(_LENGTH_BYTES)
        if len(head) < _LENGTH_BYTES:
            return None
        return _decode_to(self._reader.read(int.from_bytes(head, "big")))

    def write(self, message: FromProcess) -> None:
        """Send a message."""
        with self._writing:
            self._connection.sendall(framed(message))
