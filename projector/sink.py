"""What events are projected into: the snapshots, and each of the users' own projections.

Each sink knows for itself how far it has read each run. A message is done with when all sinks have seen it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tidewheel.journal.public import PublicEvent
from tidewheel.projector.folding import Followed
from tidewheel.store.records import RunRef


class Sink(Protocol):
    """Keeps something of each run. All methods raise ``StoreUnavailable``."""

    @property
    def name(self) -> str:
        """What it is called in logs and alerts."""

    async def prepare(self) -> None:
        """Make sure that there is a place for what it keeps."""

    async def take(self, runs: Mapping[RunRef, Sequence[PublicEvent]]) -> dict[RunRef, Followed]:
        """Take in what goes on from what was seen, and say how far each run was followed.

        A run that the store does not know (any more) counts as followed to its end.
        """

    async def halt(self, run: RunRef) -> None:
        """Let it be seen that events of *run* are missing."""

    async def heal(self, run: RunRef) -> int | None:
        """Read what is missing from the journal; return the latest event seen, None if the run is gone."""
