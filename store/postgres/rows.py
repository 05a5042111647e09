"""The ledger's rows, over what was fetched while the runs were locked.

What the ledger puts is kept here, and what it asks next finds it; nothing goes to the database before the
ledger is done. What was not fetched is ``Missing``: whoever runs the ledger fetches it and runs it again,
over rows made anew, since the ledger changes what it is given.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from tidewheel.journal.events import Entry
from tidewheel.store.admission import QueueLoad, load_from
from tidewheel.store.columns import micros
from tidewheel.store.passages import PassageRow, checksum, entries_of
from tidewheel.store.postgres.asked import Asked
from tidewheel.store.postgres.changes import Changes
from tidewheel.store.postgres.json_rows import RUN, STEP, TIMER, from_hex
from tidewheel.store.postgres.written import Written
from tidewheel.store.records import Passage, Place, RunRecord, RunRef, StepRecord, TimerRecord


class Missing(Exception):
    """Something was asked for that was not fetched. ``is_lock``: a run has to be locked, in its place."""

    def __init__(self, more: Asked, *, is_lock: bool = False) -> None:
        super().__init__()
        self.more = more
        self.is_lock = is_lock


class Fetched:
    """What came from the database, as it came, and what was asked for."""

    def __init__(self) -> None:
        self.asked = Asked()
        self.runs: dict[RunRef, dict[str, Any]] = {}
        self.refs: dict[bytes, RunRef] = {}
        self.by_idempotency_key: dict[tuple[str, str], RunRef] = {}
        self.steps: dict[tuple[bytes, str], dict[str, Any]] = {}
        self.timers: dict[tuple[bytes, str], dict[str, Any]] = {}
        self.promises: dict[tuple[bytes, str], tuple[str, bool]] = {}
        self.facts: set[tuple[bytes, str]] = set()
        self.step_ids: dict[tuple[bytes, str], int] = {}
        #: The limits of queues, and what counted in them when they were locked.
        self.loads: dict[tuple[str, str], QueueLoad] = {}
        #: The rows of journals, by the run and its first event.
        self.passages: dict[bytes, dict[int, PassageRow]] = {}
        #: The ranges of events that were asked for.
        self.ranges: dict[RunRef, list[tuple[int, int | None]]] = {}

    def add(self, asked: Asked, found: dict[str, Any]) -> None:
        """Take in what was *found* of what was *asked*."""
        self._remember(asked)
        for row in found.get("runs") or ():
            ref, key = RunRef(row["namespace"], row["run_id"]), from_hex(row["run_key"])
            self.runs[ref], self.refs[key] = row, ref
            if row["idempotency_key"] is not None:
                self.by_idempotency_key[row["namespace"], row["idempotency_key"]] = ref
        for kind in ("steps", "all_steps"):
            for row in found.get(kind) or ():
                self.steps[from_hex(row["run_key"]), row["path"]] = row
        for row in found.get("timers") or ():
            self.timers[from_hex(row["run_key"]), row["path"]] = row
        for row in found.get("promises") or ():
            self.promises[from_hex(row["run_key"]), row["name"]] = (row["path"], row["resolved"])
        for row in found.get("facts") or ():
            self.facts.add((from_hex(row["run_key"]), row["fact"]))
        for row in found.get("step_ids") or ():
            self.step_ids[from_hex(row["run_key"]), row["step_id"]] = row["attempt"]
        for row in found.get("limits") or ():
            self.loads[row[0], row[1]] = load_from(row)
        for key, first, last, at, codec, data, sum_ in found.get("events") or ():
            row = (first, last, at, codec, from_hex(data), sum_)
            self.passages.setdefault(from_hex(key), {})[first] = row

    def _remember(self, more: Asked) -> None:
        for kind in (
            "runs",
            "by_key",
            "keys",
            "limits",
            "all_steps",
            "steps",
            "timers",
            "promises",
            "facts",
            "step_ids",
        ):
            getattr(self.asked, kind).update(getattr(more, kind))
        for ref, asked_range in more.events.items():
            self.ranges.setdefault(ref, []).append(asked_range)


class FetchedRows:
    """``Rows`` over *fetched*; what is put is collected in ``written``."""

    def __init__(self, fetched: Fetched) -> None:
        self._fetched = fetched
        self._runs: dict[bytes, RunRecord] = {}
        self._refs: dict[RunRef, bytes] = {}
        self._steps: dict[tuple[bytes, str], StepRecord | None] = {}
        self._timers: dict[tuple[bytes, str], TimerRecord | None] = {}
        self._promises: dict[tuple[bytes, str], tuple[str, bool]] = {}
        self._facts: set[tuple[bytes, str]] = set()
        self._step_ids: dict[tuple[bytes, str], int] = {}
        self._cleared: set[bytes] = set()
        self._passages: list[tuple[bytes, Passage]] = []
        self._changed_steps: set[tuple[bytes, str]] = set()
        self._put: dict[bytes, RunRecord] = {}
        #: The places of runs, and by how much those of a queue became more.
        self._places: dict[bytes, Place | None] = {}
        self._more: Counter[tuple[str, str, Place]] = Counter()
        for row in fetched.runs.values():
            run = RUN.record(row)
            self._hold(run)
            self._places[run.key] = run.place

    # Runs

    def run(self, ref: RunRef) -> RunRecord | None:
        """Return the run's row, which is locked."""
        key = self._refs.get(ref)
        if key is not None:
            return self._runs[key]
        if ref not in self._fetched.asked.runs:
            raise _missing_run(ref)
        return None

    def run_by_key(self, key: bytes) -> RunRecord | None:
        """Return the row of the run with this key."""
        run = self._runs.get(key)
        if run is None and key not in self._fetched.asked.by_key:
            more = Asked()
            more.by_key.add(key)
            raise Missing(more, is_lock=True)
        return run

    def run_by_idempotency_key(self, namespace: str, idempotency_key: str) -> RunRecord | None:
        """Return the row of the run that was started with this key."""
        for run in self._put.values():  # one that was started in this very transaction
            if (run.namespace, run.idempotency_key) == (namespace, idempotency_key):
                return run
        if (namespace, idempotency_key) not in self._fetched.asked.keys:
            more = Asked()
            more.keys.add((namespace, idempotency_key))
            raise Missing(more, is_lock=True)
        ref = self._fetched.by_idempotency_key.get((namespace, idempotency_key))
        return None if ref is None else self.run(ref)

    def put_run(self, run: RunRecord) -> None:
        """Keep the row."""
        self._hold(run)
        self._put[run.key] = run
        before = self._places.get(run.key)
        if before != run.place:
            self._recount(run, before, -1)
            self._recount(run, run.place, 1)
            self._places[run.key] = run.place

    def _recount(self, run: RunRecord, place: Place | None, by: int) -> None:
        if place is not None:
            self._more[run.namespace, run.queue, place] += by

    def _hold(self, run: RunRecord) -> None:
        self._runs[run.key], self._refs[run.ref] = run, run.key

    # Admission

    def load(self, namespace: str, queue: str) -> QueueLoad | None:
        """Return the limit of a queue, which is locked, and what counts in it by now."""
        if (namespace, queue) not in self._fetched.asked.limits:
            more = Asked()
            more.limits.add((namespace, queue))
            raise Missing(more, is_lock=True)
        load = self._fetched.loads.get((namespace, queue))
        if load is None:
            return None
        running = load.running + self._more[namespace, queue, "running"]
        pending = load.pending + self._more[namespace, queue, "queued"]
        return QueueLoad(limit=load.limit, running=running, pending=pending)

    # The journal

    def entries(self, key: bytes, first_seq: int, last_seq: int) -> list[Entry]:
        """Return a range of the journal."""
        new = [_row_of(passage) for of, passage in self._passages if of == key]
        fetched_end = new[0][0] - 1 if new else last_seq
        if first_seq <= fetched_end and not self._was_asked(key, first_seq, min(fetched_end, last_seq)):
            more = Asked()
            more.events[self._ref(key)] = (first_seq, last_seq)
            raise Missing(more)
        fetched = sorted(self._fetched.passages.get(key, {}).values())
        rows = [row for row in (*fetched, *new) if row[1] >= first_seq]
        return entries_of(rows, first_seq, last_seq, lambda: self._runs[key].run_id)

    def _was_asked(self, key: bytes, first_seq: int, last_seq: int) -> bool:
        """Tell whether these events would have come, if they were there."""
        return any(
            first <= first_seq and (last is None or last_seq <= last)
            for first, last in self._fetched.ranges.get(self._ref(key), ())
        )

    def add_passage(self, key: bytes, passage: Passage) -> None:
        """Keep the next events of a run."""
        self._passages.append((key, passage))

    # What is open

    def step(self, key: bytes, path: str) -> StepRecord | None:
        """Return an open step."""
        place = (key, path)
        if place not in self._steps:
            self._steps[place] = self._fetched_step(key, path)
        return self._steps[place]

    def _fetched_step(self, key: bytes, path: str) -> StepRecord | None:
        row = self._fetched.steps.get((key, path))
        if key in self._cleared or self._is_new(key):
            return None
        if row is None:
            ref, asked = self._ref(key), self._fetched.asked
            if ref not in asked.all_steps and (ref, path) not in asked.steps:
                more = Asked()
                more.steps.add((ref, path))
                raise Missing(more)
            return None
        return STEP.record(row)

    def steps(self, key: bytes) -> list[StepRecord]:
        """Return all open steps, in the order in which they were scheduled."""
        if not self._is_new(key) and key not in self._cleared:
            if self._ref(key) not in self._fetched.asked.all_steps:
                more = Asked()
                more.all_steps.add(self._ref(key))
                raise Missing(more)
            for of, path in self._fetched.steps:
                if of == key:
                    self.step(of, path)
        found = [step for (of, _), step in self._steps.items() if of == key and step is not None]
        return sorted(found, key=lambda step: step.scheduled_seq)

    def put_step(self, key: bytes, step: StepRecord) -> None:
        """Keep the row."""
        self._steps[key, step.path] = step
        self._changed_steps.add((key, step.path))

    def delete_step(self, key: bytes, path: str) -> None:
        """Forget the row."""
        self._steps[key, path] = None
        self._changed_steps.add((key, path))

    def timer(self, key: bytes, path: str) -> TimerRecord | None:
        """Return an open timer."""
        place = (key, path)
        if place in self._timers:
            return self._timers[place]
        if key in self._cleared or self._is_new(key):
            return None
        row = self._fetched.timers.get(place)
        if row is None and (self._ref(key), path) not in self._fetched.asked.timers:
            more = Asked()
            more.timers.add((self._ref(key), path))
            raise Missing(more)
        return None if row is None else TIMER.record(row)

    def put_timer(self, key: bytes, timer: TimerRecord) -> None:
        """Keep a new timer."""
        self._timers[key, timer.path] = timer

    def delete_timer(self, key: bytes, path: str) -> None:
        """Forget the row."""
        self._timers[key, path] = None

    def promise(self, key: bytes, name: str) -> tuple[str, bool] | None:
        """Return a promise's path, and whether it is resolved."""
        place = (key, name)
        if place in self._promises:
            return self._promises[place]
        if key in self._cleared or self._is_new(key):
            return None
        found = self._fetched.promises.get(place)
        if found is None and (self._ref(key), name) not in self._fetched.asked.promises:
            more = Asked()
            more.promises.add((self._ref(key), name))
            raise Missing(more)
        return found

    def put_promise(self, key: bytes, name: str, path: str, *, resolved: bool) -> None:
        """Keep the row."""
        self._promises[key, name] = (path, resolved)

    def clear_open(self, key: bytes) -> None:
        """Forget what the segment had open."""
        self._cleared.add(key)
        for rows in (self._steps, self._timers, self._promises):
            for place in [place for place in rows if place[0] == key]:
                del rows[place]
        self._changed_steps = {place for place in self._changed_steps if place[0] != key}

    # What must happen once

    def is_known(self, key: bytes, fact: str) -> bool:
        """Tell whether the fact was written."""
        if (key, fact) in self._facts or (key, fact) in self._fetched.facts:
            return True
        if not self._is_new(key) and (self._ref(key), fact) not in self._fetched.asked.facts:
            more = Asked()
            more.facts.add((self._ref(key), fact))
            raise Missing(more)
        return False

    def remember(self, key: bytes, fact: str) -> None:
        """Remember the fact."""
        self._facts.add((key, fact))

    def step_id_attempt(self, key: bytes, step_id: str) -> int:
        """Return the highest attempt of a keyed step of this id, 0 if there was none."""
        place = (key, step_id)
        if place in self._step_ids:
            return self._step_ids[place]
        found = self._fetched.step_ids.get(place)
        if found is not None or self._is_new(key):
            return found or 0
        if (self._ref(key), step_id) not in self._fetched.asked.step_ids:
            more = Asked()
            more.step_ids.add((self._ref(key), step_id))
            raise Missing(more)
        return 0

    def put_step_id(self, key: bytes, step_id: str, attempt: int) -> None:
        """Remember the id."""
        self._step_ids[key, step_id] = max(attempt, self.step_id_attempt(key, step_id))

    # In the end

    def written(self) -> Written:
        """Return what has to be written."""
        known, changes = self._fetched.refs, Changes()
        for key, run in self._put.items():
            changes.add_run(run, is_new=key not in known)
        for key, passage in self._passages:
            changes.add_passage(key, passage)
        for key in self._cleared:
            if key in known:
                changes.clear(key)
        for key, path in sorted(self._changed_steps):
            step = self._steps[key, path]
            if step is not None:
                changes.add_step(key, step)
            elif (key, path) in self._fetched.steps:
                changes.close_step(key, path)
        for (key, path), timer in self._timers.items():
            if timer is not None:
                changes.add_timer(key, timer)
            elif key not in self._cleared:
                changes.end_timer(key, path)
        for (key, name), (path, resolved) in self._promises.items():
            changes.add_promise(key, name, path, resolved=resolved)
        for key, fact in self._facts:
            changes.add_fact(key, fact)
        for (key, step_id), attempt in self._step_ids.items():
            changes.add_step_id(key, step_id, attempt)
        return changes.written()

    def _is_new(self, key: bytes) -> bool:
        """Tell whether the run is started in this transaction: there is nothing of it in the database."""
        return key not in self._fetched.refs

    def _ref(self, key: bytes) -> RunRef:
        return self._runs[key].ref


def _missing_run(ref: RunRef) -> Missing:
    more = Asked()
    more.runs.add(ref)
    return Missing(more, is_lock=True)


def _row_of(passage: Passage) -> PassageRow:
    data = passage.data
    return (passage.first_seq, passage.last_seq, micros(passage.at), passage.codec, data, checksum(data))
