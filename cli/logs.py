"""Where log lines go. Only the command sets this up: the library logs, and leaves the rest to its user.

People get one line per record; programs get JSON. Payloads are never logged, here or elsewhere. Everything
is as it was when the block is left, so that one process may run several commands.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import logging
import os
import traceback
from collections.abc import Iterator
from typing import Any, Final, TextIO

from tidewheel.cli import output
from tidewheel.cli.log_fields import fields_of

#: Libraries that talk too much below this level.
_CHATTY: Final = ("kombu", "amqp", "alembic", "sqlalchemy", "asyncio")
#: Libraries whose warnings ours say better, in one sentence and without a traceback.
_MUTE: Final = ("aio_pika", "aiormq", "psycopg")
LEVELS: Final = ("debug", "info", "warning", "error")


class LineFormatter(logging.Formatter):
    """A line for people: the time, which process where there are several, the level where it matters."""

    def __init__(self, process: str | None = None) -> None:
        super().__init__()
        self._of = "" if process is None else f"[{process} {os.getpid()}] "

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; a traceback follows it on lines of its own."""
        at = dt.datetime.fromtimestamp(record.created).astimezone()
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        line = f"{at:%H:%M:%S} {self._of}{level}{record.getMessage()}"
        return line + ("" if not record.exc_info else "\n" + self.formatException(record.exc_info))


class JsonFormatter(logging.Formatter):
    """A JSON object on one line; what a record says in ``fields``, or is about, becomes keys of it."""

    def __init__(self, process: str | None = None) -> None:
        super().__init__()
        self._of = {} if process is None else {"process": process, "pid": os.getpid()}

    def format(self, record: logging.LogRecord) -> str:
        """Return the object."""
        at = dt.datetime.fromtimestamp(record.created, dt.UTC)
        said: dict[str, Any] = {
            "at": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._of,
            **fields_of(record),
        }
        if record.exc_info:
            said["exception"] = "".join(traceback.format_exception(*record.exc_info))
        return json.dumps(said, ensure_ascii=False, default=str)


class LogHandler(logging.StreamHandler[TextIO]):
    """Writes to a stream whose reader may leave: that is no reason to complain on another one."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is logging's
        """Drop what cannot be written."""


class WarningHandler(logging.Handler):
    """Tells warnings of the library as the command tells its own."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__(logging.WARNING)
        self._as_json = as_json

    def emit(self, record: logging.LogRecord) -> None:
        """Tell it."""
        output.warn(record.getMessage(), as_json=self._as_json)


@contextlib.contextmanager
def of_a_service(stream: TextIO, *, level: str, as_json: bool, process: str | None = None) -> Iterator[None]:
    """Write the log of a process that goes on for long to *stream*, from *level* up.

    Where several write to the same stream, each line says which *process* it is of.
    """
    handler = LogHandler(stream)
    handler.setFormatter(JsonFormatter(process) if as_json else LineFormatter(process))
    with _installed(handler, level.upper()):
        yield


@contextlib.contextmanager
def of_a_command(*, as_json: bool) -> Iterator[None]:
    """Show only warnings, next to the result."""
    with _installed(WarningHandler(as_json=as_json), "WARNING"):
        yield


@contextlib.contextmanager
def _installed(handler: logging.Handler, level: str) -> Iterator[None]:
    root = logging.getLogger()
    before = {name: logging.getLogger(name).level for name in (*_CHATTY, *_MUTE)}
    level_before = root.level
    root.addHandler(handler)
    root.setLevel(level)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    for name in _MUTE:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level_before)
        for name, value in before.items():
            logging.getLogger(name).setLevel(value)
