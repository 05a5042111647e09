"""The rows of the memory twin: dicts, which are the ledger's view of them and the truth at once."""

from __future__ import annotations

from collections import defaultdict

from tidewheel.journal.events import Entry
from tidewheel.store.admission import QueueLimit, QueueLoad
from tidewheel.store.columns import micros
from tidewheel.store.counting import Counters
from tidewheel.store.memory_admission import counted
from tidewheel.store.memory_outbox import OutboxRow
from tidewheel.store.passages import checksum, entries_of
from tidewheel.store.records import Passage, RunRecord, RunRef, StepRecord, TimerRecord


class MemoryRows:
    """All rows of all runs; the ledger's view of them and the truth are the same thing."""

    def __init__(self) -> None:
        self.runs: dict[bytes, RunRecord] = {}
        self.by_ref: dict[RunRef, bytes] = {}
        self.by_idempotency_key: dict[tuple[str, str], bytes] = {}
        self.journals: defaultdict[bytes, list[Passage]] = defaultdict(list)
        self.open_steps: defaultdict[bytes, dict[str, StepRecord]] = defaultdict(dict)
        self.open_timers: defaultdict[bytes, dict[str, TimerRecord]] = defaultdict(dict)
        self.promises: defaultdict[bytes, dict[str, tuple[str, bool]]] = defaultdict(dict)
        self.known: defaultdict[bytes, set[str]] = defaultdict(set)
        self.step_ids: defaultdict[bytes, dict[str, int]] = defaultdict(dict)
        #: What the bus is owed, per run, in order.
        self.outbox: defaultdict[bytes, list[OutboxRow]] = defaultdict(list)
        self.counters = Counters()
        self.limits: dict[tuple[str, str], QueueLimit] = {}

    def load(self, namespace: str, queue: str) -> QueueLoad | None:
        """Return the limit of a queue, and what counts in it."""
        limit = self.limits.get((namespace, queue))
        return None if limit is None else counted(limit, self.runs.values())

    def run(self, ref: RunRef) -> RunRecord | None:
        """Return the run's row."""
        key = self.by_ref.get(ref)
        return None if key is None else self.runs[key]

    def run_by_key(self, key: bytes) -> RunRecord | None:
        """Return the row of the run with this key."""
        return self.runs.get(key)

    def run_by_idempotency_key(self, namespace: str, idempotency_key: str) -> RunRecord | None:
        """Return the row of the run that was started with this key."""
        key = self.by_idempotency_key.get((namespace, idempotency_key))
        return None if key is None else self.runs[key]

    def put_run(self, run: RunRecord) -> None:
        """Keep the row and the ways to find it."""
        self.runs[run.key] = run
        self.by_ref[run.ref] = run.key
        if run.idempotency_key is not None:
            self.by_idempotency_key[run.namespace, run.idempotency_key] = run.key

    def entries(self, key: bytes, first_seq: int, last_seq: int) -> list[Entry]:
        """Decode a range of the journal."""
        rows = (
            (one.first_seq, one.last_seq, micros(one.at), one.codec, one.data, checksum(one.data))
            for one in self.journals[key]
            if one.last_seq >= first_seq
        )
        entries = entries_of(rows, first_seq, last_seq, lambda: self.runs[key].run_id)
        self.counters.events_read += len(entries)
        return entries

    def add_passage(self, key: bytes, passage: Passage) -> None:
        """Append to the journal."""
        journal = self.journals[key]
        end = journal[-1].last_seq if journal else -1
        assert passage.first_seq == end + 1, "a hole or a repetition in the journal"
        journal.append(passage)
        self.counters.events_written += passage.last_seq - end
        if passage.public is not None:
            self.outbox[key].append(
                OutboxRow(
                    first_seq=passage.first_seq,
                    last_seq=passage.last_seq,
                    created_at=passage.at,
                    due_at=passage.at,
                )
            )

    def step(self, key: bytes, path: str) -> StepRecord | None:
        """Return an open step that has a row."""
        return self.open_steps[key].get(path)

    def steps(self, key: bytes) -> list[StepRecord]:
        """Return all open steps that have rows."""
        return list(self.open_steps[key].values())

    def put_step(self, key: bytes, step: StepRecord) -> None:
        """Keep the row."""
        self.open_steps[key][step.path] = step

    def delete_step(self, key: bytes, path: str) -> None:
        """Forget the row."""
        self.open_steps[key].pop(path, None)

    def timer(self, key: bytes, path: str) -> TimerRecord | None:
        """Return an open timer."""
        return self.open_timers[key].get(path)

    def put_timer(self, key: bytes, timer: TimerRecord) -> None:
        """Keep the row."""
        self.open_timers[key][timer.path] = timer

    def delete_timer(self, key: bytes, path: str) -> None:
        """Forget the row."""
        self.open_timers[key].pop(path, None)

    def promise(self, key: bytes, name: str) -> tuple[str, bool] | None:
        """Return a promise's path, and whether it is resolved."""
        return self.promises[key].get(name)

    def put_promise(self, key: bytes, name: str, path: str, *, resolved: bool) -> None:
        """Keep the row."""
        self.promises[key][name] = (path, resolved)

    def clear_open(self, key: bytes) -> None:
        """Forget what the segment had open."""
        for rows in (self.open_steps, self.open_timers, self.promises):
            rows[key].clear()

    def is_known(self, key: bytes, fact: str) -> bool:
        """Tell whether the fact was written."""
        return fact in self.known[key]

    def remember(self, key: bytes, fact: str) -> None:
        """Remember the fact."""
        self.known[key].add(fact)

    def step_id_attempt(self, key: bytes, step_id: str) -> int:
        """Return the highest attempt of a keyed step of this id."""
        return self.step_ids[key].get(step_id, 0)

    def put_step_id(self, key: bytes, step_id: str, attempt: int) -> None:
        """Remember the id."""
        self.step_ids[key][step_id] = max(attempt, self.step_ids[key].get(step_id, 0))

    def forget(self, key: bytes) -> None:
        """Delete a run and all that belongs to it."""
        run = self.runs.pop(key)
        del self.by_ref[run.ref]
        if run.idempotency_key is not None:
            self.by_idempotency_key.pop((run.namespace, run.idempotency_key), None)
        open_rows = (self.open_steps, self.open_timers, self.promises)
        for rows in (self.journals, self.known, self.step_ids, self.outbox, *open_rows):
            rows.pop(key, None)
