"""What an append needs is fetched with its locks: two round trips, whatever it does, if nothing is known."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeAlias

import pytest

from tests.conformance.store.driving import (
    NOW,
    Clock,
    Run,
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
from tidewheel.journal import events as ev
from tidewheel.store.append import Await, Cancelled, ChildStart, Fate, Fired, Park, Resolved
from tidewheel.store.postgres.config import PostgresConfig
from tidewheel.store.postgres.store import PostgresStore

TWO = 2
CHILD = ChildStart(workflow="w", version="", digest="")


@pytest.fixture
async def store(journals: str, clock: Clock) -> AsyncIterator[PostgresStore]:
    """A store whose round trips are counted."""
    opened = await PostgresStore.open(journals, clock=clock, config=PostgresConfig(remembered_max=0))
    yield opened
    await opened.close()


@pytest.fixture
async def busy(store: PostgresStore) -> Run:
    """A run with one of everything open, and a child."""
    run = Run(store, "r")
    await run.start()
    await run.move(
        task("0"),
        task("1", key="k"),
        task("2", kind="workflow"),
        ev.TimerScheduled(promise_id="3", fire_at=NOW),
        ev.PromiseCreated(promise_id="4", name="answer"),
        waits("0"),
        children={"2": CHILD},
    )
    await Run(store, "r:2").see()
    return run


Verb: TypeAlias = Callable[[Run], Awaitable[object]]


async def ends_child(run: Run) -> None:
    """The child comes to its end, which its parent is told."""
    child = Run(run.store, "r:2")
    child.seen, child.token = 0, b""
    await child.move(ends())


VERBS: dict[str, Verb] = {
    "start": lambda run: Run(run.store, "new").start(idempotency_key="k"),
    "start-again": lambda run: run.start(),
    "open": lambda run: Run(run.store, "new").open(task("0"), waits("0"), start=a_start(1)),
    "open-by-key": lambda run: Run(run.store, "new").open(ends(), start=a_start(1, idempotency_key="k")),
    "open-with-child": lambda run: Run(run.store, "new").open(
        task("0", kind="workflow"), waits("0"), children={"0": CHILD}
    ),
    "open-again": lambda run: Run(run.store, "r").open(task("0"), waits("0")),
    "signal": lambda run: run.tell(signal()),
    "begin": lambda run: run.tell(began("0")),
    "complete": lambda run: run.tell(done("0")),
    "retry": lambda run: run.tell(failed("0", retry_at=NOW, overdue=True)),
    "fire": lambda run: run.tell(Fired(path="3")),
    "cancel": lambda run: run.tell(Cancelled()),
    "resolve": lambda run: run.tell(Resolved(name="answer", result=ok(1), key="once")),
    "complete-and-move": lambda run: run.move(resumes("0"), task("5"), waits("5"), facts=[done("0")]),
    "keyed-step": lambda run: run.move(resumes("0"), task("5", key="k2"), waits("5"), facts=[done("0")]),
    "child-start": lambda run: run.move(
        resumes("0"), task("5", kind="workflow"), waits("5"), facts=[done("0")], children={"5": CHILD}
    ),
    "child-end": ends_child,
    "give-up": lambda run: run.move(resumes("0"), waits("1"), facts=[done("0")], abandoned=("1", "2")),
    "end": lambda run: run.move(resumes("0"), ends(), facts=[done("0")]),
    "continue": lambda run: run.move(
        resumes("0"), ev.ExecutionContinued(next_position=6), ev.ExecutionStarted(), facts=[done("0")]
    ),
    "await": lambda run: run.mark(Await(reply_to="queue")),
    "park": lambda run: run.mark(Park(kind="quarantine", reason="it kills its workers")),
}


@pytest.mark.parametrize("verb", VERBS)
async def test_an_append_takes_two_round_trips(busy: Run, store: PostgresStore, verb: str) -> None:
    """One to lock and to look at all that it will ask for, one to write and commit."""
    before = store.counters.round_trips

    await VERBS[verb](busy)

    assert store.counters.round_trips - before == TWO


async def test_what_was_not_foreseen_is_fetched(busy: Run, store: PostgresStore) -> None:
    """A key that reads like a path, in a run whose steps are known by theirs: it only takes longer."""
    before = store.counters.round_trips

    answer = await busy.move(resumes("0"), task("5", key="0"), waits("5"), facts=[done("0")])

    assert answer.fate is not None
    assert store.counters.round_trips - before > TWO
    assert (await busy.step("5")).key_part != "0"


async def test_what_was_not_foreseen_of_many_steps_is_fetched_at_once(
    busy: Run, store: PostgresStore
) -> None:
    """After a key that reads like a path, steps are asked for by theirs: of thousands all in one question."""
    await busy.move(resumes("0"), task("5", key="42"), waits("5"), facts=[done("0")])
    before = store.counters.round_trips

    many = [task(str(number)) for number in range(6, 2_006)]
    answer = await busy.move(resumes("5"), *many, waits("6"), facts=[done("5")])

    assert answer.fate is Fate.COMMITTED
    assert store.counters.round_trips - before == TWO + 1
