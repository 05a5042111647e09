"""Appends that can be written without asking first: the runs are remembered, or not there yet. No I/O.

Each run has a ledger of its own, so that those of which too little is remembered are left out without a
trace in the others.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from tidewheel.store.append import Append, Appended
from tidewheel.store.ledger import Ledger
from tidewheel.store.postgres.arrays import bigints, byteas, texts
from tidewheel.store.postgres.asked import name_number
from tidewheel.store.postgres.known_changes import KnownChanges
from tidewheel.store.postgres.remembered import Memory, NotRemembered, Remembered, RememberedRows
from tidewheel.store.records import RunRef


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
        self._new_key = new_key
        self.answers: dict[int, Appended] = {}
        self._rows: dict[RunRef, RememberedRows] = {}
        trees: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for place, request in enumerate(batch):
            namespace, run_id = request.run
            trees[namespace, run_id.partition(":")[0]].append(place)
        known = {ref: memory.take(ref) for ref in {request.run for request in batch}}
        #: When all of this happens. A journal's time does not go back.
        self.now = max([now, *(one.run.updated_at for one in known.values() if one is not None)])
        for places in trees.values():
            self._answer([(place, batch[place]) for place in places], known)
        self.changes = KnownChanges(self.now)
        for rows in self._rows.values():
            rows.collect(self.changes)

    def _answer(self, requests: list[tuple[int, Append]], known: Mapping[RunRef, Remembered | None]) -> None:
        """Run the ledger for the appends to one tree, or leave them all."""
        rows: dict[RunRef, RememberedRows] = {}
        ledgers: dict[RunRef, Ledger] = {}
        answers: dict[int, Appended] = {}
        try:
            for place, request in requests:
                ref = request.run
                if ref not in rows:
                    if known[ref] is None and request.start is None:
                        return
                    rows[ref] = RememberedRows(ref, known[ref])
                    ledgers[ref] = Ledger(rows[ref], self.now, lambda: self._new_key(self.now))
                answers[place] = ledgers[ref].append(request)
        except (NotRemembered, AssertionError):  # a rule that is broken is found, and told, by asking
            return
        self._rows |= rows
        self.answers |= answers

    def arguments(self, *, is_own_clock: bool) -> list[bytes | None]:
        """Return the arguments of ``tidewheel_write_known``, as Postgres's binary form has them."""
        marked = [(rows.key, rows.mark) for rows in self._rows.values() if rows.key is not None]
        names = sorted(name_number("run", *ref) for ref, rows in self._rows.items() if rows.key is None)
        return [
            bigints(names),
            byteas([key for key, _ in marked]),
            texts([mark for _, mark in marked]),
            b"\x01" if is_own_clock else b"\x00",
            *self.changes.parameters(),
        ]

    def happened(self, at: dt.datetime) -> None:
        """Say in the answers when it was, by the database's clock."""
        for answer in self.answers.values():
            answer.now = at

    def keep(self, mark: str) -> None:
        """Remember the runs as they are now that all was written, by the transaction with this *mark*."""
        for rows in self._rows.values():
            known = rows.remembered(mark)
            if known is not None:
                self._memory.keep(known)
