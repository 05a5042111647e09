"""The waiting room: events that came before the one they follow, by run.

Bounded by what may be in hand at a time: every event here is an unsettled delivery. Pure but for holding
them; time is an argument, in seconds of the loop's clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidewheel.projector.arrivals import Arrival
from tidewheel.store.records import RunRef


class WaitingRoom:
    """Who waits, and since when."""

    def __init__(self) -> None:
        self._waiting: dict[RunRef, list[Arrival]] = {}

    def __len__(self) -> int:
        """How many runs have somebody here."""
        return len(self._waiting)

    def of(self, run: RunRef) -> list[Arrival]:
        """Return the events of *run* that wait."""
        return list(self._waiting.get(run, ()))

    def runs(self) -> list[RunRef]:
        """Return the runs that have somebody here."""
        return list(self._waiting)

    def seat(self, run: RunRef, arrivals: Sequence[Arrival]) -> None:
        """Let exactly *arrivals* wait for *run*."""
        if arrivals:
            self._waiting[run] = list(arrivals)
        else:
            self._waiting.pop(run, None)

    def overdue(self, runs: Iterable[RunRef], now: float, patience_s: float) -> list[RunRef]:
        """Return which of *runs* have somebody here who has waited for longer than that."""
        return [
            run
            for run in runs
            if run in self._waiting and now - min(arrival.at for arrival in self._waiting[run]) >= patience_s
        ]
