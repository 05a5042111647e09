"""Short ways to say what a worker, a client or an operator asks of a store."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from itertools import count
from typing import Any

from tidewheel.journal import events as ev
from tidewheel.store.append import (
    Append,
    Appended,
    Completed,
    Fact,
    Fate,
    Mark,
    Moves,
    Retrying,
    Signalled,
    Start,
    Started,
)
from tidewheel.store.protocol import Loaded, Store
from tidewheel.store.records import RunRecord, RunRef, StepRecord, WorkerRecord

NOW = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)
BROKEN = ev.Error(type="Broken", message="it broke", retryable=True)
_numbers = count()


class Clock:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        """Return the time as ``time.time`` does."""
        return self.now.timestamp()

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += dt.timedelta(seconds=seconds)


class Run:
    """One run as the worker sees it that activates it: it knows the fence, and what it was shown."""

    def __init__(self, store: Store, run_id: str, namespace: str = "default") -> None:
        self.store = store
        self.ref = RunRef(namespace, run_id)
        self.token = b""
        self.seen = -1

    async def start(self, *given: Any, mark: Mark | None = None, **options: Any) -> Appended:
        """Start the run."""
        answer = await self.ask(start=a_start(*given, **options), mark=mark)
        self.seen = answer.last_seq
        return answer

    async def ask(self, **what: Any) -> Appended:
        """Append, for this run."""
        (answer,) = await self.store.append([Append(run=self.ref, **what)])
        return answer

    async def tell(self, *facts: Fact) -> Appended:
        """Report facts, without showing them to the code."""
        return await self.ask(facts=facts)

    async def mark(self, mark: Mark) -> Appended:
        """Mark the run."""
        return await self.ask(mark=mark)

    def moves(self, *events: ev.Event, **options: Any) -> Moves:
        """Return what an activation asks for that has seen all it knows of."""
        new = b"token-%d" % next(_numbers)
        known: dict[str, Any] = {
            "expected": self.token,
            "token": new,
            "base_seq": self.seen,
            "owner": "worker-1",
        }
        return Moves(events=list(events), **(known | options))

    async def move(self, *events: ev.Event, facts: Sequence[Fact] = (), **options: Any) -> Appended:
        """Append moves, and take over the fence if they were committed."""
        moves = self.moves(*events, **options)
        answer = await self.ask(facts=tuple(facts), moves=moves)
        if answer.fate is Fate.COMMITTED:
            self.seen = answer.last_seq
            self.token = moves.token if events else self.token
        return answer

    def opening(
        self, *events: ev.Event, start: Start | None = None, mark: Mark | None = None, **options: Any
    ) -> Append:
        """Return the start of the run with what an activation asks for that was shown nothing but that."""
        moves = self.moves(*events, **({"expected": b"", "base_seq": 0} | options))
        return Append(run=self.ref, start=start or a_start(), moves=moves, mark=mark)

    async def open(self, *events: ev.Event, **options: Any) -> Appended:
        """Start the run with its first moves, and take over the fence if they were committed."""
        request = self.opening(*events, **options)
        (answer,) = await self.store.append([request])
        if answer.fate is Fate.COMMITTED:
            assert request.moves is not None
            self.seen, self.token = answer.last_seq, request.moves.token
        return answer

    async def see(self) -> Loaded:
        """Load the run, as the next activation would."""
        loaded = await self.store.load(self.ref)
        assert loaded is not None
        self.seen, self.token = loaded.run.last_seq, loaded.run.token
        return loaded

    async def record(self) -> RunRecord:
        """Read the run's row."""
        record = await self.store.find(self.ref)
        assert record is not None
        return record

    async def step(self, path: str = "0") -> StepRecord:
        """Read an open step."""
        loaded = await self.store.load_step(self.ref, path)
        assert loaded is not None
        return loaded.step

    async def has_step(self, path: str = "0") -> bool:
        """Tell whether a step is open."""
        return await self.store.load_step(self.ref, path) is not None

    async def journal(self) -> list[ev.Entry]:
        """Read the whole journal."""
        entries = await self.store.journal(self.ref)
        assert entries is not None
        assert [entry.run_seq for entry in entries] == list(range(len(entries)))
        return entries

    async def story(self) -> list[str]:
        """Read the journal as the names of its events."""
        return [type(entry.event).__name__ for entry in await self.journal()]


def a_start(*given: Any, workflow: str = "shop", queue: str = "main", **options: Any) -> Start:
    """Return what starts a run."""
    return Start(workflow=workflow, queue=queue, input=list(given), **options)


def task(path: str = "0", **options: Any) -> ev.InvokeScheduled:
    """Return the schedule of a step."""
    return ev.InvokeScheduled(**({"promise_id": path, "function_name": "charge"} | options))


def waits(*paths: str) -> ev.ExecutionAwaiting:
    """Return the suspension on *paths*."""
    return ev.ExecutionAwaiting(waiting_on=list(paths), kind="all")


def resumes(*paths: str) -> ev.ExecutionResumed:
    """Return the resumption by *paths*."""
    return ev.ExecutionResumed(applied=list(paths))


def ends(value: Any = None) -> ev.ExecutionCompleted:
    """Return the end of a run."""
    return ev.ExecutionCompleted(result=ok(value))


def ok(value: Any = None) -> ev.Result:
    """Return a good result."""
    return ev.Result(ok=value)


def began(path: str = "0", attempt: int = 1, owner: str = "worker-1") -> Started:
    """Return that an attempt began."""
    return Started(path=path, attempt=attempt, owner=owner)


def done(
    path: str = "0", attempt: int = 1, value: Any = None, owner: str | None = "worker-1", **options: Any
) -> Completed:
    """Return that an attempt came to a result."""
    return Completed(path=path, attempt=attempt, result=ok(value), owner=owner, **options)


def failed(
    path: str = "0", attempt: int = 1, retry_at: dt.datetime | None = None, **options: Any
) -> Retrying:
    """Return that an attempt failed; without a time for the next the step is parked."""
    known: dict[str, Any] = {"error": BROKEN, "owner": "worker-1"}
    return Retrying(path=path, attempt=attempt, retry_at=retry_at, **(known | options))


def signal(key: str = "k", name: str = "go", payload: Any = None) -> Signalled:
    """Return that a signal came."""
    return Signalled(name=name, payload=payload, key=key)


def a_worker(worker_id: str = "worker-1", alive_for_s: float = 30.0) -> WorkerRecord:
    """Return a worker that is alive for so long."""
    return WorkerRecord(
        worker_id=worker_id,
        host="here",
        pid=7,
        began="123.4",
        queues=("main", "heavy"),
        workflows=(("shop", "", "d1"), ("mail", "2", "d2")),
        started_at=NOW,
        alive_until=NOW + dt.timedelta(seconds=alive_for_s),
    )
