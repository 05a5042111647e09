"""Costs that must not grow: counted, never timed."""

from __future__ import annotations

import asyncio
import datetime as dt

from tidewheel import App, Context
from tidewheel.journal import codec
from tidewheel.journal import events as ev
from tidewheel.journal.ids import PromiseId
from tidewheel.replay.execution import Execution
from tidewheel.replay.history import History
from tidewheel.sdk.program import execution_of

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
app = App("costs")


@app.task
async def work(value: int) -> int:
    """A step."""
    return value


@app.workflow
async def fan_out(ctx: Context, count: int) -> int:
    """Gather many steps."""
    return sum(await asyncio.gather(*(ctx.invoke(work, one) for one in range(count))))


@app.workflow
async def branches(ctx: Context, count: int) -> int:
    """Gather many branches of two steps each."""

    async def branch(one: int) -> int:
        first = await ctx.invoke(work, one)
        return await ctx.invoke(work, first)

    return sum(await asyncio.gather(*(branch(one) for one in range(count))))


class _NoEntropy:
    def random(self) -> float:
        return 0.0

    def uuid(self) -> str:
        return ""


class _Counting(History):
    """Counts how often each entry is read."""

    reads = 0

    def observe(self, entry: ev.Entry) -> None:
        """Count, then index."""
        type(self).reads += 1
        super().observe(entry)


def play(workflow: object, count: int) -> list[ev.Entry]:
    """Run a workflow whose steps end one at a time; return its journal."""
    journal: list[ev.Entry] = []

    def put(event: ev.Event) -> ev.Entry:
        journal.append(ev.Entry(len(journal), NOW, event))
        return journal[-1]

    definition = app.workflow_named(workflow)  # type: ignore[arg-type]  # any registered function
    execution = execution_of(definition, PromiseId("run"), entropy=_NoEntropy())
    execution.load([put(ev.ExecutionStarted(workflow=definition.name, input=[count], now=NOW))])
    while not isinstance(journal[-1].event, ev.TERMINAL):
        activation = execution.activate(NOW)
        for event in activation.events if activation else ():
            put(event)
        step = next(execution.open_invokes(), None)
        if step is not None and step.event is not None:
            value = ev.Result(ok=step.event.input[0])
            put(ev.InvokeStarted(promise_id=step.path, attempt=1))
            execution.load([put(ev.InvokeCompleted(promise_id=step.path, result=value, attempt=1))])
    execution.evict()
    return journal


def size(journal: list[ev.Entry]) -> int:
    """The bytes a store would hold."""
    return len(codec.encode([entry.event for entry in journal]))


def test_gathering_ten_thousand_promises_that_arrive_singly_writes_a_linear_journal() -> None:
    """An activation in which the code asks for nothing new appends nothing."""
    small, large = play(fan_out, 1_000), play(fan_out, 10_000)

    assert len(large) == 3 * 10_000 + 4
    assert len(small) == 3 * 1_000 + 4
    assert size(large) / size(small) < 10.5


def test_branches_that_move_one_by_one_write_a_linear_journal() -> None:
    """A suspension names a bounded number of the promises it waits on."""
    small, large = play(branches, 300), play(branches, 3_000)

    assert size(large) / size(small) < 11


def test_a_cold_replay_reads_each_event_once() -> None:
    """Ten thousand events are indexed in one pass, and the code is run once."""
    journal = play(fan_out, 3_332)
    definition = app.workflow_named(fan_out)
    execution: Execution = execution_of(definition, PromiseId("run"), entropy=_NoEntropy())
    execution.history.__class__ = _Counting
    _Counting.reads = 0

    execution.load(journal)
    execution.replay()

    assert _Counting.reads == len(journal) == 10_000
    ended = execution.ending()
    assert isinstance(ended, ev.ExecutionCompleted)
    execution.evict()
