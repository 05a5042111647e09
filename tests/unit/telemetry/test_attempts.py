"""Spans of attempts, whatever executes them: in whose trace they are, and how they ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from msgspec import UNSET
from opentelemetry import trace

from tests.unit.telemetry.recording import Recording, attributes, parent_id, span_id
from tidewheel.journal import events as ev
from tidewheel.sdk.limits import Limits
from tidewheel.store.memory import MemoryStore
from tidewheel.store.records import RunRef
from tidewheel.telemetry import names
from tidewheel.workers.runner import Attempt, Runner

RUN = RunRef("default", "r")


@pytest.fixture
async def runner() -> AsyncIterator[Runner]:
    """A runner with a single slot."""
    store = MemoryStore()
    made = Runner(store, slots=1, threads=1, limits=Limits())
    yield made
    await made.close()
    await store.close()


def an_attempt(call: Callable[[], Any], path: str = "0", limits: ev.InvokeLimits | None = None) -> Attempt:
    """Return the first attempt of an operation."""
    event = ev.InvokeScheduled(
        promise_id=path, function_name="work", kind="operation", limits=limits or UNSET
    )
    return Attempt(run=RUN, event=event, number=1, owner="w", elapsed=0.0, call=call)


def turn(recording: Recording) -> str:
    """Let another turn of the run be the latest; return its span."""
    span = recording.recorder.spans.begin(names.ACTIVATE, "order")
    recording.recorder.runs.of(RUN).latest = span.trace
    return span.trace.span_id


async def inside() -> int:
    """Return the span that the body is in."""
    return trace.get_current_span().get_span_context().span_id


async def test_an_attempt_that_waited_for_a_slot_belongs_to_the_turn_that_asked_for_it(
    runner: Runner, recording: Recording
) -> None:
    """Whatever other turns there were meanwhile."""
    gate, ended = asyncio.Event(), asyncio.Event()
    first = turn(recording)
    runner.begin(an_attempt(gate.wait), lambda *_: None)
    runner.begin(an_attempt(inside, "1"), lambda *_: ended.set())

    turn(recording)
    gate.set()
    await ended.wait()

    assert {parent_id(span) for span in recording.spans("task work")} == {int(first, 16)}


async def test_the_body_is_in_the_span_of_its_attempt(runner: Runner, recording: Recording) -> None:
    """What it begins itself, here or in a thread, is a child of that."""

    def plain() -> int:
        return trace.get_current_span().get_span_context().span_id

    results = [await runner.execute(an_attempt(call, path)) for path, call in (("0", inside), ("1", plain))]

    told = [span_id(span) for span in recording.spans("task work")]
    assert [result.ok for result in results if isinstance(result, ev.Result)] == told


async def test_an_attempt_that_was_given_up_says_so(runner: Runner, recording: Recording) -> None:
    """Nobody wants to know how it ends, but it was executed."""
    begun = asyncio.Event()

    async def work() -> None:
        begun.set()
        await asyncio.Event().wait()

    underway = runner.begin(an_attempt(work), lambda *_: None)
    await begun.wait()

    underway.cancel()

    assert attributes(recording.span("task work"))[names.OUTCOME] == "given_up"


async def test_one_that_never_got_a_slot_was_not_executed(runner: Runner, recording: Recording) -> None:
    """There is no span of what did not happen."""
    gate = asyncio.Event()
    runner.begin(an_attempt(gate.wait), lambda *_: None)
    waiting = runner.begin(an_attempt(inside, "1"), lambda *_: None)

    waiting.cancel()
    gate.set()
    await asyncio.sleep(1)

    assert recording.attempts() == [("0", 1)]


async def test_one_that_lasts_too_long_failed(runner: Runner, recording: Recording) -> None:
    """Its span ends when its time does."""
    ended = asyncio.Event()
    attempt = an_attempt(asyncio.Event().wait, limits=ev.InvokeLimits(timeout=5.0))

    runner.begin(attempt, lambda *_: ended.set())
    await ended.wait()

    span = recording.span("task work")
    assert attributes(span)[names.ERROR_TYPE] == "TimeoutError"
    assert not span.status.is_ok
