"""Appends that can be written without asking first: the runs are remembered, or not there yet. No I/O.

Each run has a ledger of its own, so that those of which too little is remembered are left out without a
trace in the others.
"""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from tidewheel.store.append import Append, Appended
from tidewheel.store.columns import micros
from tidewheel.store.passages import checksum
from tidewheel.store.postgres.arrays import bigints, byteas, texts, utf8_texts
from tidewheel.store.postgres.asked import name_number
from tidewheel.store.postgres.changes import Changes
from tidewheel.store.postgres.json_rows import storable
from tidewheel.store.postgres.memory import Memory, Remembered
from tidewheel.store.postgres.remembered_rows import NotRemembered, RememberedRows
from tidewheel.store.records import Passage, RunRecord, RunRef

_BIGINT: Final = struct.Struct("!q")
_INTEGER: Final = struct.Struct("!i")
#: The version of jsonb's binary form.
_JSONB: Final = b"\x01"
_YES, _NO = b"\x01", b"\x00"

_encode = msgspec.json.Encoder().encode


class KnownGroup:
    """What of *batch* can be written without asking; ``answers`` are by places in it.

    Appends to the runs of one tree stay in their order: if one of them has to ask, all of them do.
    """

    def __init__(
        self,
        batch: Sequence[Append],
        memory: Memory,
        now: dt.datetime,
        new_key: Callable[[dt.datetime], bytes],
    ) -> None:
        self._memory = memory
        self._known: dict[RunRef, Remembered] = {}
        self.answers: dict[int, Appended] = {}
        for request in batch:
            known = memory.take(request.run)
            if known is not None:
                self._known[request.run] = known
                updated_at = known.rows.record.updated_at if known.rows.record is not None else now
                now = max(now, updated_at)  # a journal's time does not go back
        self.now = now
        asking: set[tuple[str, str]] = set()
        for place, request in enumerate(batch):
            ref = request.run
            known = self._known.get(ref)
            if known is None and request.start is not None:
                known = self._known[ref] = Remembered(RememberedRows(ref, None), now, lambda: new_key(now))
            try:
                if known is None or _asks_first(request, memory):
                    raise NotRemembered
                self.answers[place] = known.append(request, now)
            except (NotRemembered, AssertionError):  # a rule that is broken is found, and told, by asking
                asking.add(_tree(ref))
        if asking:
            self._known = {ref: known for ref, known in self._known.items() if _tree(ref) not in asking}
            self.answers = {
                place: answer for place, answer in self.answers.items() if batch[place].run in self._known
            }
        self.writes = KnownWrites(now)
        for known in self._known.values():
            known.rows.collect(self.writes)

    def statement(self, *, is_own_clock: bool) -> tuple[str, list[bytes | None]]:
        """Return what writes the group, and its arguments as Postgres's binary form has them."""
        if len(self._known) == 1:
            (known,) = self._known.values()
            one = self.writes.one(known.revision, is_own_clock=is_own_clock)
            if one is not None:
                return "write_one", one
        return "write_known", self._arguments(is_own_clock=is_own_clock)

    def _arguments(self, *, is_own_clock: bool) -> list[bytes | None]:
        names: list[int] = []
        revisions: dict[bytes, int] = {}
        for ref, known in self._known.items():
            record = known.rows.record
            if known.rows.is_new:
                names.append(name_number("run", *ref))
            elif record is not None:
                revisions[record.key] = known.revision
        moved = self.writes.moved_keys()
        keys = [*moved, *(revisions.keys() - moved)]
        return [
            bigints(sorted(names)),
            byteas(keys),
            bigints([revisions[key] for key in keys]),
            _INTEGER.pack(len(moved)),
            _YES if is_own_clock else _NO,
            *self.writes.arguments(),
        ]

    def happened(self, at: dt.datetime) -> None:
        """Say in the answers when it was, by the database's clock."""
        for answer in self.answers.values():
            answer.now = at

    def keep(self) -> None:
        """Remember the runs as they are now that all was written."""
        for answer in self.answers.values():
            for hint in answer.hints:
                hint.sketch = self._known[answer.run].rows.sketch()
        for ref, known in self._known.items():
            if known.rows.goes_on_here():
                known.settle()
                self._memory.keep(ref, known)


def _asks_first(request: Append, memory: Memory) -> bool:
    """Tell whether *request* starts a run in a queue that has a limit."""
    return request.start is not None and memory.is_limited(request.run.namespace, request.start.queue)


def _tree(ref: RunRef) -> tuple[str, str]:
    return ref.namespace, ref.run_id.partition(":")[0]


class KnownWrites:
    """What a group of known appends came to. All of it happens at *now*.

    What nearly every append writes has arrays of its own, one per column, and is neither turned into JSON
    here nor out of it there: runs that moved on or were started, with what was added to their journals. The
    rest goes as ``Changes``.
    """

    def __init__(self, now: dt.datetime) -> None:
        self._now_us = micros(now)
        self.rest = Changes()
        #: How many events there are.
        self.events = 0
        self._moved: list[RunRecord] = []
        self._moved_passages: list[Passage] = []
        self._started: list[RunRecord] = []
        self._started_passages: list[Passage] = []
        self._more: list[tuple[bytes, Passage]] = []
        self._cleared: list[bytes] = []

    def move(self, run: RunRecord, passage: Passage) -> None:
        """A run moved on, and this was written last."""
        self._moved.append(run)
        self._moved_passages.append(passage)
        self.events += passage.last_seq - passage.first_seq + 1

    def start(self, run: RunRecord, passage: Passage) -> None:
        """A run was started with this."""
        self._started.append(run)
        self._started_passages.append(passage)
        self.events += passage.last_seq - passage.first_seq + 1

    def add(self, key: bytes, passage: Passage) -> None:
        """Something was written beside that."""
        self._more.append((key, passage))
        self.events += passage.last_seq - passage.first_seq + 1

    def clear(self, key: bytes) -> None:
        """All that a run had open goes, before anything new comes."""
        self._cleared.append(key)

    def moved_keys(self) -> dict[bytes, None]:
        """Return the runs that moved on, in the order in which they are told."""
        return dict.fromkeys([run.key for run in self._moved])

    def one(self, revision: int, *, is_own_clock: bool) -> list[bytes | None] | None:
        """Return the arguments of ``write_one``, if one run moved on and that is all; else None."""
        if len(self._moved) != 1 or self._more or self._cleared or not self.rest.is_empty:
            return None
        (run,), (passage,) = self._moved, self._moved_passages
        bigint = _BIGINT.pack
        return [
            _YES if is_own_clock else _NO,
            bigint(self._now_us),
            bigint(revision),
            run.key,
            bigint(passage.last_seq),
            bigint(passage.first_seq),
            passage.data,
            bigint(checksum(passage.data)),
            passage.public,
            run.phase.encode(),
            run.token,
            _encode(run.inline),
            None if run.owner is None else run.owner.encode(),
            None if run.owner_message is None else storable(run.owner_message).encode(),
            None if run.wake_at is None else bigint(micros(run.wake_at)),
            None if run.prev_seq is None else bigint(run.prev_seq),
            bigint(run.has_unkeyed_steps),
            None if run.ended_at is None else bigint(micros(run.ended_at)),
        ]

    def arguments(self) -> list[bytes | None]:
        """Return the arguments of the function, from *event_at* on, as Postgres's binary form has them."""
        passages = self._moved_passages + self._started_passages
        keys = [run.key for run in self._moved]
        keys += [run.key for run in self._started]
        for key, passage in self._more:
            keys.append(key)
            passages.append(passage)
        return [
            _BIGINT.pack(self._now_us),
            byteas(keys),
            bigints([passage.first_seq for passage in passages]),
            bigints([passage.last_seq for passage in passages]),
            byteas([passage.data for passage in passages]),
            bigints([checksum(passage.data) for passage in passages]),
            byteas([passage.public for passage in passages]),
            *self._row_arrays(self._moved + self._started),
            *self._started_arrays(),
            byteas(self._cleared),
            None if self.rest.is_empty else _JSONB + self.rest.as_json(),
        ]

    def _row_arrays(self, runs: Sequence[RunRecord]) -> list[bytes]:
        return [
            texts([run.phase for run in runs]),
            byteas([run.token for run in runs]),
            utf8_texts([_encode(run.inline) for run in runs]),
            texts([run.owner for run in runs]),
            texts([_text(run.owner_message) for run in runs]),
            bigints([_micros(run.wake_at) for run in runs]),
            bigints([run.prev_seq for run in runs]),
            bigints([run.has_unkeyed_steps for run in runs]),
            bigints([_micros(run.ended_at) for run in runs]),
        ]

    def _started_arrays(self) -> list[bytes]:
        runs = self._started
        return [
            byteas([run.key for run in runs]),
            texts([run.namespace for run in runs]),
            texts([run.run_id for run in runs]),
            texts([run.workflow for run in runs]),
            texts([storable(run.version) for run in runs]),
            texts([storable(run.digest) for run in runs]),
            texts([storable(run.queue) for run in runs]),
            texts([run.started_id for run in runs]),
            utf8_texts([_encode(run.reply_to) for run in runs]),
        ]


def _text(text: str | None) -> str | None:
    return None if text is None else storable(text)


def _micros(at: dt.datetime | None) -> int | None:
    return None if at is None else micros(at)
