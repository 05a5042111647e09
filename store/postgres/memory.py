"""Runs as this process left them, so that what is appended to them next need not ask first.

A run is remembered with all that it has open, and with its *revision*, which every append counts up in its
row: a row that still has it says that all of it is as it was. The ledger then goes on where it was, and the
database writes what it came to only if the revisions are still there (``known_group``). If they are not,
nothing is written, what is remembered is forgotten, and the append asks as if nothing had been known.

Decision: what the keeper does to runs and open steps (when they are due, how often they were hinted at) it
does without counting. Whoever goes on with them writes both anew, so nothing is lost by not having seen
them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable

import msgspec

from tidewheel.store.append import Append, Appended
from tidewheel.store.ledger import Ledger
from tidewheel.store.postgres.remembered_rows import RememberedRows
from tidewheel.store.records import RunRecord, RunRef, StepRecord, TimerRecord


class Remembered:
    """A run, all that it has open, and its *revision*."""

    __slots__ = ("_ledger", "revision", "rows")

    def __init__(
        self, rows: RememberedRows, now: dt.datetime, new_key: Callable[[], bytes], revision: int = -1
    ) -> None:
        """The revision of a run that is not there yet is before the first."""
        self.rows = rows
        self.revision = revision
        self._ledger = Ledger(rows, now, new_key)

    def append(self, request: Append, now: dt.datetime) -> Appended:
        """Let the ledger go on. It may raise ``NotRemembered``; then this is of no use any more."""
        self._ledger.go_on(now)
        return self._ledger.append(request)

    def settle(self) -> None:
        """What the appends came to was written."""
        self.rows.settle()
        self.revision += 1


class Memory:
    """The runs that are remembered, at most so many; the one that was not used for longest is forgotten."""

    def __init__(self, runs_max: int) -> None:
        self._runs_max = runs_max
        self._runs: dict[RunRef, Remembered] = {}
        #: Queues that were found to have a limit: whoever starts a run there asks first.
        self._limited: set[tuple[str, str]] = set()

    def learn_limits(self, limited: Iterable[tuple[str, str]], unlimited: Iterable[tuple[str, str]]) -> None:
        """Remember which queues have a limit. To be wrong costs an exchange, and nothing else."""
        self._limited.update(limited)
        self._limited.difference_update(unlimited)

    def is_limited(self, namespace: str, queue: str) -> bool:
        """Tell whether a queue was found to have a limit."""
        return (namespace, queue) in self._limited

    @property
    def is_used(self) -> bool:
        """Whether anything is to be remembered: else every append asks first."""
        return self._runs_max > 0

    def learn(
        self, run: RunRecord, steps: Iterable[StepRecord], timers: Iterable[TimerRecord], revision: int
    ) -> None:
        """Remember a run that was read; whoever read it keeps its own copy."""
        if run.ended or not self.is_used:
            return
        inline = {step.path for step in run.inline}
        own_rows = [msgspec.structs.replace(step) for step in steps if step.path not in inline]
        rows = RememberedRows(run.ref, msgspec.structs.replace(run), own_rows, timers)
        self.keep(run.ref, Remembered(rows, run.updated_at, _no_key, revision))

    def keep(self, ref: RunRef, known: Remembered) -> None:
        """Remember a run as it was just written."""
        self._runs.pop(ref, None)
        self._runs[ref] = known
        if len(self._runs) > self._runs_max:
            del self._runs[next(iter(self._runs))]

    def take(self, ref: RunRef) -> Remembered | None:
        """Return what is remembered of a run, and forget it: the ledger changes what it is given."""
        return self._runs.pop(ref, None)

    def forget_all(self) -> None:
        """Forget everything: a connection was lost, and the server may not be the one it was."""
        self._runs.clear()


def _no_key() -> bytes:
    raise AssertionError("a run that is remembered has its key, and others are not started from here")
