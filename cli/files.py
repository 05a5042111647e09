"""Reading the file that ``--file`` names."""

from __future__ import annotations

import sys
from pathlib import Path

from tidewheel.cli.failure import Failure
from tidewheel.journal.events import Entry
from tidewheel.journal.jsonform import FormatError, loads

STDIN = "-"


def read_bytes(name: str) -> bytes:
    """Return what is in the file *name*, or what comes in where it is ``-``."""
    try:
        if name == STDIN:
            return b"" if sys.stdin is None else sys.stdin.buffer.read()
        return Path(name).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        message = f"there is no file {name!r}"
        raise Failure.not_found(message, "check --file; `-` reads standard input") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        message = f"file {name!r} cannot be read: {why}"
        raise Failure.invalid(message, "give --file a file that holds a journal as JSON") from None


def read_journal(name: str) -> list[Entry]:
    """Return the journal in the file *name*, which must be readable as one."""
    try:
        return loads(read_bytes(name))
    except FormatError as error:
        message = f"{shown(name)} is not a journal: {error}"
        raise Failure.invalid(message, f"see `tidewheel journal verify --file {name}`") from None


def shown(name: str) -> str:
    """Return *name* as people read it."""
    return "standard input" if name == STDIN else name
