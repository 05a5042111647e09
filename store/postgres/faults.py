"""What Postgres's errors mean to the caller.

Rule: what is no mistake of ours becomes ``StoreUnavailable``, which names the database and says what to do,
and promises that nothing was written. What is left as it is (a constraint, a bad statement) is a bug.
Passwords are never repeated: the database is named by ``shown``.
"""

from __future__ import annotations

import asyncio
import random

import psycopg
from sqlalchemy import exc

from tidewheel.store.errors import SchemaMismatch, StoreUnavailable

#: What happened, and what to do about it, by SQLSTATE; the longest beginning that fits counts.
_ADVICE: dict[str, str] = {
    "08": "lost the connection; it is connected again at the next use",
    "25006": "is read-only: connect to the primary, or end its default_transaction_read_only",
    "25P03": "ended a transaction that was idle for too long; look for what stopped this process",
    "28": "refuses this user; look at the user name, the password and pg_hba.conf",
    "3D000": "is not there: create the database, then run `tidewheel db migrate`",
    "42501": "denies this user what is needed; run `tidewheel db migrate --roles` and grant the role",
    "53100": "has no room left on its disk; free some space, it goes on by itself",
    "53200": "needs more memory than there is",
    "53300": "has too many connections; lower the pools or raise max_connections",
    "53": "has run out of something",
    "55P03": "waited too long for a lock; look in pg_stat_activity for who holds it",
    "57014": "took longer than statement_timeout; look in pg_stat_activity for what holds it up",
    "57P": "is shutting down or starting; it is connected again at the next use",
    "58": "cannot use its files; look at its log and its disk",
    "40": "broke a circle of waiting; try again",
}
#: The longest pause before the first repetition.
PAUSE_FIRST_S = 0.02
_UNDEFINED = ("42P01", "42883", "42703", "3F000")


def state_of(error: BaseException) -> str:
    """Return the SQLSTATE, empty where there is none: then the connection itself is at fault."""
    if isinstance(error, exc.DBAPIError) and error.orig is not None:
        error = error.orig
    return getattr(error, "sqlstate", None) or ""


def is_lost(error: BaseException) -> bool:
    """Tell whether the connection is gone, and with it the transaction."""
    if isinstance(error, TimeoutError | OSError):
        return True
    if isinstance(error, exc.DBAPIError) and error.orig is not None:
        error = error.orig
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    state = state_of(error)
    return not state or state.startswith(("08", "57P")) or state == "25P03"


def is_worth_repeating(error: BaseException) -> bool:
    """Tell whether the same transaction may well succeed at once: a circle of waiting was broken."""
    return state_of(error) in ("40001", "40P01")


async def pause(tried: int) -> None:
    """Wait a little before a transaction is repeated, each time another while: two must not meet again."""
    await asyncio.sleep(random.uniform(0.2, 1.0) * PAUSE_FIRST_S * 2**tried)  # noqa: S311 - not a secret


def concerns_all(error: BaseException) -> bool:
    """Tell whether *error* is about the database, not about what was asked of it."""
    return is_lost(error) or (_advice(state_of(error)) is not None and state_of(error) != "55P03")


def translated(error: BaseException, shown: str) -> BaseException:
    """Return *error* as the caller should see it; it may be the same."""
    if isinstance(error, asyncio.CancelledError) or not isinstance(
        error, psycopg.Error | exc.SQLAlchemyError | TimeoutError | OSError
    ):
        return error
    state = state_of(error)
    told: BaseException
    if state in _UNDEFINED:
        told = SchemaMismatch(
            f"{shown} does not have the schema of this release ({_first_line(error)}): "
            "run `tidewheel db migrate`"
        )
    elif (advice := _advice(state)) is not None:
        told = StoreUnavailable(f"{shown} {advice} ({_first_line(error)}); nothing was written")
    elif is_lost(error):
        why = _first_line(error) or "no answer in time"
        told = StoreUnavailable(f"{shown} cannot be reached ({why}); nothing was written")
    else:
        return error
    told.__cause__ = error
    return told


def _advice(state: str) -> str | None:
    for length in range(len(state), 1, -1):
        if state[:length] in _ADVICE:
            return _ADVICE[state[:length]]
    return None


def _first_line(error: BaseException) -> str:
    if isinstance(error, exc.DBAPIError) and error.orig is not None:
        error = error.orig
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
