"""What SQLite's errors mean to the caller.

Rule: what is no mistake of ours becomes ``StoreUnavailable``, which names the file and says what to do,
and promises that nothing was written. What is left as it is (a constraint, a bad statement) is a bug.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from tidewheel.store.errors import CommitUnknown, StoreUnavailable

_PRIMARY = 0xFF
#: What happened, and what to do about it, by SQLite's primary result code.
_ADVICE: dict[int, str] = {
    sqlite3.SQLITE_BUSY: "is locked by another process or a transactional step; find who holds it",
    sqlite3.SQLITE_LOCKED: "is locked by another connection of this process; try again",
    sqlite3.SQLITE_READONLY: "cannot be written; make the file and its folder writable for this user",
    sqlite3.SQLITE_PERM: "may not be used; give this user access to the file and its folder",
    sqlite3.SQLITE_AUTH: "may not be used; give this user access to the file and its folder",
    sqlite3.SQLITE_IOERR: "cannot be read or written; look at the disk",
    sqlite3.SQLITE_FULL: "has no room left; free some space on its disk",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened; see that its folder exists and is writable",
    sqlite3.SQLITE_CORRUPT: "is damaged; restore it from a backup, or salvage it with sqlite3 .recover",
    sqlite3.SQLITE_NOTADB: "is not a SQLite database; give the store a file of its own",
    sqlite3.SQLITE_PROTOCOL: "is locked by too many processes at once; try again",
    sqlite3.SQLITE_NOMEM: "needs more memory than there is",
    sqlite3.SQLITE_INTERRUPT: "was closed meanwhile",
}
#: Faults of the database as a whole: the other members of a group would meet them too.
_OF_ALL = frozenset(_ADVICE) - {sqlite3.SQLITE_FULL}


def code_of(error: sqlite3.Error) -> int:
    """Return SQLite's primary result code, 0 if the error is the driver's own."""
    return getattr(error, "sqlite_errorcode", 0) & _PRIMARY


def concerns_all(error: BaseException) -> bool:
    """Tell whether *error* is about the database, not about what was asked of it."""
    if isinstance(error, sqlite3.Error):
        return code_of(error) in _OF_ALL
    return isinstance(error, StoreUnavailable | CommitUnknown)


def translated(error: BaseException, path: Path) -> BaseException:
    """Return *error* as the caller should see it; it may be the same."""
    if not isinstance(error, sqlite3.Error):
        return error
    advice = _ADVICE.get(code_of(error))
    if advice is None:
        return error
    told = StoreUnavailable(f"{path} {advice} ({error}); nothing was written")
    told.__cause__ = error
    return told


def commit_error(error: sqlite3.Error, path: Path) -> BaseException:
    """Return what a failed COMMIT means, once it was rolled back.

    Only an I/O error leaves a doubt: the commit may be in the log though syncing it failed, and would
    come back if the process died before the log is written again.
    """
    if code_of(error) == sqlite3.SQLITE_IOERR:
        told = CommitUnknown(f"{path}: the disk failed during a commit ({error}); repeat the append")
        told.__cause__ = error
        return told
    return translated(error, path)
