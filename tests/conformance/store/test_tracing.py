"""The context of a trace: an append carries it, and what it starts, hints at or publishes has it."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from tests.conformance.store.driving import Clock, Run, a_start, began, done, ends, resumes, task, waits
from tidewheel.journal import events as ev
from tidewheel.store.append import Append, Appended, ChildStart, Fact, Fate
from tidewheel.store.errors import Unreadable
from tidewheel.store.owed_events import told_of
from tidewheel.store.protocol import Store
from tidewheel.store.records import RunRef
from tidewheel.telemetry.context import TraceContext

ONE = TraceContext("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "vendor=1")
TWO = TraceContext("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")


async def first_event(store: Store, run_id: str) -> ev.ExecutionStarted:
    """Return what a run began with."""
    entries = await store.journal(RunRef("default", run_id))
    assert entries is not None
    event = entries[0].event
    assert isinstance(event, ev.ExecutionStarted)
    return event


async def traces(store: Store) -> list[TraceContext | None]:
    """Return where each row that is owed to the bus was written."""
    claimed = await store.outbox.claim("relay", after=b"", limit=100, lease_s=30.0)
    rows = [(owed, row) for owed in claimed.owed for row in owed.rows]
    found = []
    for told in await told_of(store.outbox, rows):
        assert not isinstance(told, Unreadable)
        assert told.events
        found.append(told.trace)
    return found


async def moved(
    run: Run, trace: TraceContext | None, *events: ev.Event, facts: tuple[Fact, ...] = (), **options: Any
) -> Appended:
    """Append moves that were made in *trace*."""
    moves = run.moves(*events, **options)
    answer = await run.ask(facts=facts, moves=moves, trace=trace)
    assert answer.fate is Fate.COMMITTED
    run.seen, run.token = answer.last_seq, moves.token
    return answer


async def test_a_start_is_journaled_and_hinted_at_in_its_trace(store: Store, clock: Clock) -> None:
    """Whoever follows the hint, and whoever reads the journal, can go on from there."""
    run = Run(store, "r")

    answer = await run.ask(start=a_start("x"), trace=ONE)

    assert [hint.trace for hint in answer.hints] == [ONE]
    started = await first_event(store, "r")
    assert (started.traceparent, started.tracestate) == (ONE.traceparent, ONE.tracestate)


async def test_what_is_published_says_where_it_was_written(store: Store, clock: Clock) -> None:
    """Each append has its own; one without leaves none, whatever came before."""
    run = Run(store, "r")
    answer = await run.ask(start=a_start("x"), trace=ONE)
    run.seen = answer.last_seq
    await moved(run, None, task("0"), waits("0"))
    await run.tell(began("0"))
    await run.see()
    await moved(run, TWO, resumes("0"), ends(), facts=(done("0"),))

    assert await traces(store) == [ONE, None, TWO]


async def test_a_child_is_started_in_the_trace_of_whoever_asked_for_it(store: Store, clock: Clock) -> None:
    """The turn of the parent is where the child goes on from."""
    run = Run(store, "r")
    await run.start("x")

    answer = await moved(
        run,
        TWO,
        task("0", kind="workflow", dispatch="queued"),
        waits("0"),
        children={"0": ChildStart(workflow="w", version="", digest="")},
    )

    started = await first_event(store, "r:0")
    assert (started.traceparent, started.tracestate) == (TWO.traceparent, UNSET)
    assert [hint.trace for hint in answer.hints] == [TWO]


async def test_a_run_that_is_activated_as_it_starts_has_the_trace_too(store: Store, clock: Clock) -> None:
    """Start and first turn are one append, in one place of a trace."""
    run = Run(store, "r")
    request = run.opening(task("0"), waits("0"))

    (answer,) = await store.append([Append(run=run.ref, start=request.start, moves=request.moves, trace=ONE)])

    assert answer.fate is Fate.COMMITTED
    assert (await first_event(store, "r")).traceparent == ONE.traceparent
    assert await traces(store) == [ONE]


async def test_without_a_trace_nothing_is_said_of_one(store: Store, clock: Clock) -> None:
    """The journal is as it was before there were any."""
    run = Run(store, "r")

    answer = await run.ask(start=a_start("x"))

    assert [hint.trace for hint in answer.hints] == [None]
    assert (await first_event(store, "r")).traceparent is UNSET
    assert await traces(store) == [None]
