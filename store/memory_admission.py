"""The limits of queues in the memory twin: each method is one uninterrupted piece of code."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Protocol

from tidewheel.store.admission import QueueLimit, QueueLoad, Waiting
from tidewheel.store.records import RunRecord


class Rows(Protocol):
    """The runs and the limits of the twin."""

    runs: dict[bytes, RunRecord]
    limits: dict[tuple[str, str], QueueLimit]


def counted(limit: QueueLimit, runs: Iterable[RunRecord]) -> QueueLoad:
    """Return *limit* with how many of *runs* count in it."""
    at = (limit.namespace, limit.queue)
    places = [run.place for run in runs if run.place is not None and (run.namespace, run.queue) == at]
    return QueueLoad(limit=limit, running=places.count("running"), pending=places.count("queued"))


class MemoryAdmission:
    """See the module; *rows* gives the rows as they are, *now* the time."""

    def __init__(self, rows: Callable[[], Rows], now: Callable[[], dt.datetime]) -> None:
        self._rows = rows
        self._now = now

    async def put(self, limit: QueueLimit) -> None:
        """Set the limit of a queue, and count its open runs."""
        self._rows().limits[limit.namespace, limit.queue] = limit
        for run in self._rows().runs.values():
            if (
                (run.namespace, run.queue) == (limit.namespace, limit.queue)
                and run.place is None
                and run.parent_key is None
                and run.takes_turns
            ):
                run.place = "running"

    async def remove(self, namespace: str, queue: str) -> bool:
        """Let a queue be without a limit."""
        return self._rows().limits.pop((namespace, queue), None) is not None

    async def loads(self, namespace: str) -> list[QueueLoad]:
        """List the limits of a namespace."""
        limits = sorted((at, limit) for at, limit in self._rows().limits.items() if at[0] == namespace)
        return [counted(limit, self._rows().runs.values()) for _, limit in limits]

    async def waiting(self, *, batch_max: int) -> list[Waiting]:
        """List queued runs that may be admitted."""
        now = self._now()
        queues: defaultdict[tuple[str, str], list[Waiting]] = defaultdict(list)
        for _, run in sorted(self._rows().runs.items()):
            if run.place == "queued" and (run.admit_at is None or run.admit_at <= now):
                queues[run.namespace, run.queue].append(Waiting(run=run.ref, queue=run.queue))
        found: list[Waiting] = []
        for at, waiting in sorted(queues.items()):
            found += waiting[: min(self._room(at), batch_max)]
        return found[:batch_max]

    def _room(self, at: tuple[str, str]) -> int:
        """Return how many runs of a queue may be admitted."""
        limit = self._rows().limits.get(at)
        if limit is None:
            return len(self._rows().runs)
        return max(limit.max_running - counted(limit, self._rows().runs.values()).running, 0)
