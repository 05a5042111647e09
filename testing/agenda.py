"""The virtual clock and what is due on it."""

from __future__ import annotations

import datetime as dt
import heapq
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

Action: TypeAlias = Callable[[], Awaitable[object] | object]


@dataclass(order=True, slots=True)
class _Due:
    at: dt.datetime
    order: int
    action: Action = field(compare=False)
    #: Part of the simulated process: lost in a crash, and derived again from the journal.
    volatile: bool = field(compare=False)


class Agenda:
    """A clock that stands still, and moves only to the next thing that is due."""

    def __init__(self, start: dt.datetime) -> None:
        self.now = start
        self._due: list[_Due] = []
        self._order = itertools.count()

    def at(self, when: dt.datetime, action: Action, *, volatile: bool) -> None:
        """Put *action* on the agenda; what is due at the same time keeps this order."""
        heapq.heappush(self._due, _Due(max(when, self.now), next(self._order), action, volatile))

    def next_at(self) -> dt.datetime | None:
        """When the next thing is due."""
        return self._due[0].at if self._due else None

    def pop(self) -> Action:
        """Move the clock to the next thing that is due and return it."""
        due = heapq.heappop(self._due)
        self.now = max(self.now, due.at)
        return due.action

    def crash(self) -> None:
        """Forget what only the crashed process knew."""
        self._due = [due for due in self._due if not due.volatile]
        heapq.heapify(self._due)
