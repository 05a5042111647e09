"""What a consumer of the event bus has heard, line by line as it wrote it down."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import NamedTuple


class Heard(NamedTuple):
    """One message with an event, when it came, and when what it tells of was written."""

    at: float
    event_id: str
    run_id: str
    run_seq: int
    prev_seq: int | None
    type: str
    step_id: str | None
    logical_attempt: str
    plan_version: str
    persisted_at: float | None

    @property
    def lag_s(self) -> float:
        """How long after it was written it came."""
        return 0.0 if self.persisted_at is None else self.at - self.persisted_at


class Arrivals:
    """Reads what was heard, as it comes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = 0
        #: Every message, in the order in which they came, and those of them that nobody had heard before.
        self.messages: list[Heard] = []
        self.first: list[Heard] = []
        #: Alerts, by name.
        self.alerts: Counter[str] = Counter()
        self._known: set[str] = set()

    def look(self) -> None:
        """Read what is new."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._read)
            new = file.read()
        whole, separator, _ = new.rpartition(b"\n")
        self._read += len(whole) + len(separator)
        for line in whole.splitlines():
            told = json.loads(line)
            if len(told) == 1:
                self.alerts[told[0]] += 1
                continue
            heard = Heard(*told)
            self.messages.append(heard)
            if heard.event_id not in self._known:
                self._known.add(heard.event_id)
                self.first.append(heard)

    def by_run(self) -> dict[str, list[Heard]]:
        """Return the events of each run in the order in which they came first."""
        runs: dict[str, list[Heard]] = {}
        for heard in self.first:
            runs.setdefault(heard.run_id, []).append(heard)
        return runs
