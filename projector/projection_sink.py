"""A user's projection as a sink: events are read once, with their rows, in one transaction for many runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tidewheel.journal.errors import TidewheelError
from tidewheel.journal.public import PublicEvent, published
from tidewheel.projector.folding import Followed, follow
from tidewheel.sdk.projections import ProjectionDefinition
from tidewheel.store.projections import Key, Row, Written
from tidewheel.store.protocol import Store
from tidewheel.store.records import RunRef


class ProjectionFailed(TidewheelError):
    """A projection cannot take an event. Correct its code; the event is read again from the journal then."""

    def __init__(self, projection: str, seq: int, reason: str) -> None:
        super().__init__(f"projection {projection!r} cannot take event {seq}: {reason}")
        self.projection, self.seq, self.reason = projection, seq, reason


class ProjectionSink:
    """See the module."""

    def __init__(self, store: Store, definition: ProjectionDefinition) -> None:
        self._store = store
        self._definition = definition

    @property
    def name(self) -> str:
        """The projection's name."""
        return self._definition.name

    async def prepare(self) -> None:
        """Make the table."""
        await self._store.projections.prepare(self._definition.table)

    async def take(self, runs: Mapping[RunRef, Sequence[PublicEvent]]) -> dict[RunRef, Followed]:
        """Read what goes on from what was read of each run."""
        reading = ProjectionReading(self._definition, runs)
        await self._store.projections.project(self._definition.table, list(runs), reading)
        return reading.followed

    async def halt(self, run: RunRef) -> None:
        """Its rows are about many runs: there is nothing to mark."""

    async def heal(self, run: RunRef) -> int | None:
        """Read the events of *run* that were missed from its journal."""
        entries = await self._store.journal(run)
        if entries is None:
            return None
        events = published(entries, run.run_id, run.namespace)
        if not events:
            return -1
        followed = (await self.take({run: events}))[run]
        if followed.broken is not None:
            raise ProjectionFailed(self.name, followed.broken.run_seq, followed.reason)
        return followed.seq


class ProjectionReading:
    """Events of some runs on top of what is stored; it may be done again from the start."""

    def __init__(
        self, definition: ProjectionDefinition, runs: Mapping[RunRef, Sequence[PublicEvent]]
    ) -> None:
        self._definition = definition
        self._runs = runs
        self._seen: Mapping[RunRef, int] = {}
        #: How far each run was followed, in the end.
        self.followed: dict[RunRef, Followed] = {}

    def wants(self, seen: Mapping[RunRef, int]) -> Iterable[Key]:
        """Return the keys of the rows that the events are about."""
        self._seen = seen
        keys: dict[Key, None] = {}
        for run, seq in seen.items():
            follow(seq, self._runs[run], lambda event: self._note(event, keys))
        return keys

    def _note(self, event: PublicEvent, keys: dict[Key, None]) -> None:
        key = self._definition.key_of(event)
        if key is not None:
            keys[key] = None

    def rows(self, found: Mapping[Key, Row]) -> Written:
        """Return the rows after the events, and how far each run was read."""
        changed: dict[Key, Row] = {}
        self.followed = {}
        for run, events in self._runs.items():
            if run in self._seen:
                self.followed[run] = follow(
                    self._seen[run], events, lambda event: self._reduce(event, found, changed)
                )
            else:  # it is gone
                self.followed[run] = Followed(max(event.run_seq for event in events))
        seen = {run: one.seq for run, one in self.followed.items() if one.taken}
        return Written(list(changed.values()), seen)

    def _reduce(self, event: PublicEvent, found: Mapping[Key, Row], changed: dict[Key, Row]) -> None:
        key = self._definition.key_of(event)
        if key is not None:
            before = changed.get(key) or found.get(key)
            changed[key] = self._definition.reduced(key, before, event)
