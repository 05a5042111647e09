"""What can go wrong with a store, by what the caller should do."""

from __future__ import annotations

from tidewheel.journal.errors import TidewheelError


class StoreUnavailable(TidewheelError):
    """Nothing was written. Try again later: the store is locked, full, read-only or not reachable."""

    #: How long the store had the write before it said so, where whoever asked has measured that.
    taken_s: float = 0.0


class CommitUnknown(TidewheelError):
    """The reply to a commit was lost: repeat the same append, which tells what became of it."""

    #: As above, for all tries together.
    taken_s: float = 0.0


class SchemaMismatch(TidewheelError):
    """The database has another schema than this release. ``tidewheel db migrate`` brings it up to date."""


class Unreadable(TidewheelError):
    """A row of a run's journal cannot be read. Retrying cannot help: the run is parked."""

    def __init__(self, run_id: str, run_seq: int, reason: str) -> None:
        super().__init__(f"event {run_seq} of run {run_id} cannot be read: {reason}")
        self.run_id, self.run_seq, self.reason = run_id, run_seq, reason
