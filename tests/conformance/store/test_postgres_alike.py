"""The Postgres store against the memory twin: the same batches, the same answers, the same rows.

What an append asks for is fetched, kept and written by code of the store's own (``rows``, ``asked``, the
functions in the database), so whatever order things come in, nothing may differ.
"""

from __future__ import annotations

import copy
import datetime as dt
import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from tests.conformance.store.driving import (
    BROKEN,
    Clock,
    a_start,
    began,
    done,
    ends,
    failed,
    ok,
    resumes,
    signal,
    task,
    waits,
)
from tests.conformance.store.inside import InsideMemory, InsidePostgres
from tidewheel.journal import events as ev
from tidewheel.journal.status import Phase
from tidewheel.store.append import (
    Append,
    Await,
    Beat,
    Cancelled,
    ChildStart,
    Fact,
    Fired,
    Mark,
    Moves,
    Park,
    Released,
    Resolved,
    Strike,
    Unpark,
)
from tidewheel.store.memory import MemoryStore
from tidewheel.store.postgres.store import PostgresStore
from tidewheel.store.protocol import Store
from tidewheel.store.records import RunRecord, RunRef

BATCHES = 40
BATCH_MAX = 12
ROOTS = ("a", "b", "c")
#: How many appends in one are starts, how many of those come with the run's first moves, and how many appends
#: may be about a run that has ended.
START_PART, OPENED_PART, ENDED_PART = 0.15, 0.4, 0.1
OFTEN = 0.95
CHILD = ChildStart(workflow="w", version="", digest="")
KINDS = ("task", "task", "keyed", "numeric", "child", "timer", "promise")
FIRST_KINDS = ("task", "task", "child", "timer", "promise")


class Author:
    """Thinks of appends that fit what is there, and of some that do not."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._count = 0

    def _number(self) -> int:
        self._count += 1
        return self._count

    def batch(self, store: MemoryStore) -> list[Append]:
        """Return appends, each of which knows what those before it have done; *store* is used up."""
        batch = []
        for _ in range(self._chance.randint(1, BATCH_MAX)):
            request = self._append(store)
            store._append([request])
            batch.append(request)
        return batch

    def _append(self, store: MemoryStore) -> Append:
        known = list(store.rows.runs.values())
        open_ = [run for run in known if not run.ended]
        if not open_ or self._chance.random() < START_PART:
            return self._start()
        run = self._chance.choice(known if self._chance.random() < ENDED_PART else open_)
        facts = tuple(self._fact(store, run) for _ in range(self._chance.choice((0, 1, 1, 2, 3))))
        if self._chance.random() < 1 / 3:
            return Append(run=run.ref, facts=facts, mark=self._mark())
        # Moves that rest on a fact which is refused are dropped, so most have none.
        shown = facts[:1] if self._chance.random() < 1 / 4 else ()
        return Append(run=run.ref, facts=shown, moves=self._moves(store, run), mark=self._mark())

    def _start(self) -> Append:
        # A key is used for a while, then another: a run is found by it in the batch that started it, too.
        key = self._chance.choice((None, f"k{self._count // 15}"))
        start = a_start(self._chance.choice((1, 2)), idempotency_key=key)
        mark = self._chance.choice((Await(reply_to="client"), None, None))
        name = self._chance.choice((*ROOTS, f"n{self._number()}"))
        moves = self._first_moves() if self._chance.random() < OPENED_PART else None
        return Append(run=RunRef("default", name), start=start, moves=moves, mark=mark)

    def _first_moves(self) -> Moves:
        """Return what an activation asks for that was shown the start alone; the run may be there already."""
        children: dict[str, ChildStart] = {}
        first = self._number() * 100
        asked = [
            self._command(str(first + place), children, FIRST_KINDS)
            for place in range(self._chance.randint(0, 4))
        ]
        return Moves(
            expected=b"",
            token=b"t%d" % self._number(),
            base_seq=0,
            events=asked + self._last(first + 50),
            owner="worker-1",
            message_id=f"m{first}",
            children=children,
        )

    def _mark(self) -> Mark | None:
        marks: list[Mark | None] = [None] * 8
        marks += [Await(reply_to="client"), Park(kind="violation", reason="NUL \0 and \ud800"), Unpark()]
        marks += [Strike(reason="died", limit=2, alone=self._chance.choice((True, False)))]
        return self._chance.choice(marks)

    def _path(self, store: MemoryStore, run: RunRecord) -> str:
        paths = [*store.rows.open_steps[run.key], *store.rows.open_timers[run.key], "99"]
        return self._chance.choice(paths)

    def _fact(self, store: MemoryStore, run: RunRecord) -> Fact:
        path = self._path(store, run)
        step = store.rows.step(run.key, path)
        attempt = 1 if step is None else step.attempt + (step.state != "started")
        later = store._time() + dt.timedelta(seconds=5)
        makers: list[Callable[[], Fact]] = [
            lambda: began(path, attempt),
            lambda: done(path, attempt, value=self._number(), overdue=True),
            lambda: failed(path, attempt, retry_at=self._chance.choice((None, later)), overdue=True),
            lambda: Beat(path=path, attempt=attempt, details=b"[1]"),
            lambda: Released(path=path, owner="worker-1"),
            lambda: Fired(path=path),
            lambda: signal(f"s{self._chance.randint(1, 4)}"),
            lambda: Resolved(
                name=self._chance.choice(("yes", "no")), result=ok(1), key=f"r{self._chance.randint(1, 9)}"
            ),
        ]
        if self._chance.random() > OFTEN:
            return Cancelled(reason="enough")
        return self._chance.choice(makers)()

    def _moves(self, store: MemoryStore, run: RunRecord) -> Moves:
        chance = self._chance
        events: list[ev.Event] = [resumes("0")] if Phase(run.phase) is Phase.BLOCKED else []
        children: dict[str, ChildStart] = {}
        first = self._number() * 100
        above = f"{run.path}." if run.path else ""
        events += [
            self._command(f"{above}{first + place}", children) for place in range(chance.randint(0, 4))
        ]
        new = [event.promise_id for event in events if isinstance(event, ev.InvokeScheduled)]
        open_ = [*store.rows.open_steps[run.key], "98"]
        token = b"t%d" % self._number()
        return Moves(
            expected=run.token if chance.random() < OFTEN else b"other",
            token=token if chance.random() < OFTEN else run.token or token,
            base_seq=max(run.last_seq - chance.choice((0, 0, 0, 1, 2)), -1),
            events=events + self._last(first + 50) if chance.random() < OFTEN else [],
            owner=chance.choice(("worker-1", "worker-2", None)),
            message_id=f"m{first}",
            children=children,
            abandoned=tuple(chance.sample(open_ + new, chance.randint(0, 1))),
            wanted=tuple(chance.sample(open_, chance.randint(0, 1))),
        )

    def _last(self, position: int) -> list[ev.Event]:
        """Return what an activation ends with: most wait."""
        ways: list[list[ev.Event]] = [[waits("0")]] * 12
        ways += [[ends(1)], [ev.ExecutionFailed(error=BROKEN)]]
        ways += [[ev.ExecutionContinued(next_position=position), ev.ExecutionStarted()]] * 2
        return self._chance.choice(ways)

    def _command(self, path: str, children: dict[str, ChildStart], kinds: Sequence[str] = KINDS) -> ev.Event:
        chance = self._chance
        kind = chance.choice(kinds)
        if kind == "child":
            children[path] = CHILD
            return task(path, kind="workflow")
        if kind == "timer":
            return ev.TimerScheduled(promise_id=path, duration=5.0)
        if kind == "promise":
            return ev.PromiseCreated(promise_id=path, name=chance.choice(("yes", "no")))
        dispatch = chance.choice(("inline", "queued"))
        limits = chance.choice((ev.InvokeLimits(heartbeat=3.0), ev.InvokeLimits(schedule_to_close=9.5)))
        if kind == "task":
            return task(path, dispatch=dispatch, limits=limits)
        key = f"k{chance.randint(1, 3)}" if kind == "keyed" else str(chance.randint(1, 3) * 100)
        return task(path, key=key, dispatch=dispatch, logical_attempt=chance.randint(1, 2))


async def _seen(store: Store, ref: RunRef) -> dict[str, Any]:
    """Return all that a store tells of a run, without the keys, which are chance."""
    run, loaded = await store.find(ref), await store.load(ref)
    assert run is not None
    assert loaded is not None
    return {
        "run": msgspec.structs.replace(
            run, key=b"", parent_key=None, parked_reason=None if run.parked_reason is None else "reason"
        ),
        "steps": sorted(loaded.steps, key=lambda step: step.path),
        "timers": sorted(loaded.timers, key=lambda timer: timer.path),
        "entries": loaded.entries,
        "journal": await store.journal(ref),
    }


def _hidden_of_memory(store: MemoryStore, ref: RunRef) -> dict[str, Any]:
    rows, key = store.rows, store.rows.by_ref[ref]
    return {
        "promises": dict(rows.promises[key]),
        "facts": set(rows.known[key]),
        "step_ids": dict(rows.step_ids[key]),
    }


def _hidden_of_postgres(inside: InsidePostgres, ref: RunRef) -> dict[str, Any]:
    of = "WHERE run_key = (SELECT run_key FROM tidewheel_runs WHERE namespace = %s AND run_id = %s)"
    promises = inside.rows(f"SELECT name, path, resolved FROM tidewheel_promises {of}", *ref)  # noqa: S608 - ours
    facts = inside.rows(f"SELECT fact FROM tidewheel_facts_seen {of}", *ref)  # noqa: S608 - ours
    step_ids = inside.rows(f"SELECT step_id, attempt FROM tidewheel_step_ids {of}", *ref)  # noqa: S608 - ours
    return {
        "promises": {name: (path, resolved) for name, path, resolved in promises},
        "facts": {fact for (fact,) in facts},
        "step_ids": dict(step_ids),
    }


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_is_asked_the_answers_and_the_rows_are_the_twins(
    journals: str, clock: Clock, seed: int
) -> None:
    """Batches of starts, facts, moves and marks, of runs, their children and theirs, as chance has them."""
    twin, store = MemoryStore(clock=clock), await PostgresStore.open(journals, clock=clock)
    author = Author(seed)

    for number in range(BATCHES):
        scout = MemoryStore(clock=clock)
        scout.rows = copy.deepcopy(twin.rows)
        batch = author.batch(scout)
        expected, got = await twin.append(batch), await store.append(batch)
        for hint in (hint for answer in got for hint in answer.hints):
            hint.sketch = None  # which the twin has no use for
        assert got == expected, f"batch {number}"
        clock.advance(number % 3)

    known, inside = InsideMemory(twin), InsidePostgres(store, journals)
    for ref in sorted(twin.rows.by_ref):
        assert await _seen(store, ref) == await _seen(twin, ref), ref
        assert _hidden_of_postgres(inside, ref) == _hidden_of_memory(twin, ref), ref
        assert inside.outbox(ref) == known.outbox(ref), ref
        assert inside.passages(ref) == known.passages(ref), ref
    await store.close()
