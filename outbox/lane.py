"""One run's rows on their way to the bus, one event after the other.

The next event is offered when the bus has taken the one before. So a reader of one queue sees a run's events
in their order, whatever is refused, lost or repeated in between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from tidewheel.broker.message import Publication
from tidewheel.store.outbox import Owed, OwedRow, Place

#: So many rows of a run are known at a time: one that is told, and one that comes next.
READ_AHEAD: Final = 2


class Lane:
    """What is *owed* of one run: how much of it was read, and how much told."""

    def __init__(self, owed: Owed) -> None:
        self.owed = owed
        #: Rows whose events are not known yet, those whose events are, and those that were told.
        self._unread: deque[OwedRow] = deque(owed.rows)
        self._read: deque[tuple[OwedRow, deque[Publication]]] = deque()
        self._told: list[Place] = []
        #: Why it does not go on, and whether trying again can help.
        self.error: str | None = None
        self.is_hopeless = False

    @property
    def unread(self) -> OwedRow | None:
        """The row that has to be read next, if it comes soon: one row is known ahead."""
        return self._unread[0] if self._unread and len(self._read) < READ_AHEAD else None

    @property
    def next(self) -> Publication | None:
        """What is offered next, if it is known."""
        return self._read[0][1][0] if self._read else None

    @property
    def is_done(self) -> bool:
        """Whether all of it was told."""
        return not self._unread and not self._read

    def take_in(self, publications: Iterable[Publication]) -> None:
        """The row that had to be read publishes these."""
        row, events = self._unread.popleft(), deque(publications)
        if events:
            self._read.append((row, events))
        else:
            self._told.append(self.owed.place(row))

    def taken(self) -> None:
        """The bus has taken what was next."""
        row, events = self._read[0]
        events.popleft()
        if not events:
            self._read.popleft()
            self._told.append(self.owed.place(row))

    def fail(self, error: str, *, is_hopeless: bool = False) -> None:
        """What was next could not be told, or not even read."""
        self.error, self.is_hopeless = error, is_hopeless

    def told(self) -> list[Place]:
        """Return the rows that were told since this was asked last."""
        told, self._told = self._told, []
        return told

    @property
    def stuck_at(self) -> Place:
        """The row that could not be told."""
        row = self._read[0][0] if self._read else self._unread[0]
        return self.owed.place(row)

    @property
    def failures(self) -> int:
        """How often the row that could not be told has failed, this time included."""
        is_lowest = self.stuck_at.first_seq == self.owed.rows[0].first_seq
        return 1 + (self.owed.attempts if is_lowest else 0)
