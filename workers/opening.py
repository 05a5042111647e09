"""A run that is activated before it is there: its start and its first moves are one write.

Whoever follows a command to start a run has its input in hand. So its code is shown that at once, and what it
asks for is written together with the start. If the run turns out to be there, as where a command was given
twice, nothing is written, and it is loaded like any other.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import msgspec

from tidewheel.journal import events as ev
from tidewheel.store.append import Append, Appended, Await, Moves, Start
from tidewheel.store.protocol import Loaded
from tidewheel.store.records import RunRecord, RunRef


class Opening(msgspec.Struct, frozen=True):
    """A start that was asked for, and the queue of the client that waits for the run's end."""

    start: Start
    reply_to: str | None = None
    #: Told what became of the start.
    answered: Callable[[Appended], None] = lambda _: None

    def loaded(self, ref: RunRef, now: dt.datetime) -> Loaded:
        """Return the run as it will be once it is started *now*."""
        start = self.start
        run = RunRecord(
            key=b"",
            namespace=ref.namespace,
            run_id=ref.run_id,
            workflow=start.workflow,
            version=start.version,
            digest=start.digest,
            queue=start.queue,
            last_seq=0,
            created_at=now,
            updated_at=now,
        )
        started = ev.ExecutionStarted(
            component_digest=start.digest,
            input=start.input,
            parent_id=None,
            idempotency_key=start.idempotency_key,
            workflow=start.workflow,
            version=start.version,
            now=now,
            admission=start.admission,
            run_id=ref.run_id,
        )
        return Loaded(
            run=run,
            entries=[ev.Entry(0, now, started)],
            steps=[],
            timers=[],
            alive=frozenset(),
            now=now,
        )

    def request(self, ref: RunRef, now: dt.datetime, moves: Moves | None) -> Append:
        """Return what is written: the start, *now*, with the moves that the code made on it."""
        return Append(
            run=ref,
            start=msgspec.structs.replace(self.start, now=now),
            moves=moves,
            mark=None if self.reply_to is None else Await(reply_to=self.reply_to),
        )
