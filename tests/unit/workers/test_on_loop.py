"""Attempts that need a slot and the loop alone: how they wait, end, and are given up."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from msgspec import UNSET

from tidewheel import current_task
from tidewheel.journal import events as ev
from tidewheel.sdk.limits import Limits
from tidewheel.store.memory import MemoryStore
from tidewheel.store.records import RunRef
from tidewheel.workers.on_loop import OnLoop
from tidewheel.workers.runner import Attempt, Outcome, Runner

RUN = RunRef("default", "r")


@pytest.fixture
async def runner() -> AsyncIterator[Runner]:
    """A runner with a single slot."""
    store = MemoryStore()
    made = Runner(store, slots=1, threads=0, limits=Limits())
    yield made
    await made.close()
    await store.close()


def _attempt(call: Callable[[], Any], path: str = "0", limits: ev.InvokeLimits | None = None) -> Attempt:
    event = ev.InvokeScheduled(
        promise_id=path, function_name="work", kind="operation", limits=limits or UNSET
    )
    return Attempt(run=RUN, event=event, number=1, owner="w", elapsed=0.0, call=call)


class Heard:
    """What attempts came to, by path."""

    def __init__(self) -> None:
        self.outcomes: dict[str, Outcome] = {}
        self._news = asyncio.Event()

    def __call__(self, attempt: Attempt, outcome: Outcome) -> None:
        """Take notice of an attempt that ended."""
        assert attempt.event.promise_id not in self.outcomes
        self.outcomes[attempt.event.promise_id] = outcome
        self._news.set()

    async def of(self, path: str) -> ev.Result:
        """Wait for the result at *path*."""
        while path not in self.outcomes:
            self._news.clear()
            async with asyncio.timeout(5):
                await self._news.wait()
        outcome = self.outcomes[path]
        assert isinstance(outcome, ev.Result)
        return outcome


async def test_they_take_turns_for_the_slot_and_the_body_knows_its_step(runner: Runner) -> None:
    """What the body may know is made when it asks, and is the same each time."""
    heard, gate = Heard(), asyncio.Event()

    async def first() -> int:
        await gate.wait()
        return 1

    async def second() -> list[Any]:
        step = current_task()
        return [step.run_id, step.attempt, step is current_task()]

    attempts = [_attempt(first, "0"), _attempt(second, "1")]
    begun = [runner.begin(attempt, heard) for attempt in attempts]
    await asyncio.sleep(0.01)

    assert all(isinstance(one, OnLoop) for one in begun)
    assert (runner.running, runner.waiting) == (1, 1)
    assert [attempt.has_begun for attempt in attempts] == [True, False]
    gate.set()
    assert await heard.of("1") == ev.Result(ok=["r", 1, True])
    assert await heard.of("0") == ev.Result(ok=1)
    assert (runner.running, runner.waiting) == (0, 0)


async def test_one_that_is_given_up_frees_its_slot_though_its_body_goes_on(runner: Runner) -> None:
    """Nobody hears of it, and who waited behind it begins; who gave up waiting never does."""
    heard, ends, ended = Heard(), asyncio.Event(), list[str]()

    async def stubborn() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await ends.wait()
            ended.append("stubborn")

    async def prompt() -> int:
        return 2

    begun = [runner.begin(_attempt(stubborn, "0"), heard)]
    begun += [runner.begin(_attempt(prompt, path), heard) for path in ("1", "2")]
    await asyncio.sleep(0.01)
    begun[1].cancel()
    begun[0].cancel()
    begun[0].cancel()

    assert await heard.of("2") == ev.Result(ok=2)
    assert ended == []
    ends.set()
    await asyncio.sleep(0.01)
    assert ended == ["stubborn"]
    assert list(heard.outcomes) == ["2"]
    assert (runner.running, runner.waiting) == (0, 0)


async def test_its_time_runs_from_when_it_has_a_slot(runner: Runner) -> None:
    """One that outlasts its limit fails, and does not keep the next one waiting."""
    heard = Heard()

    async def lasts() -> None:
        await asyncio.sleep(60)

    async def works() -> int:
        await asyncio.sleep(0.02)
        return 3

    runner.begin(_attempt(lasts, "0", limits=ev.InvokeLimits(timeout=0.05)), heard)
    runner.begin(_attempt(works, "1", limits=ev.InvokeLimits(timeout=0.05)), heard)
    runner.begin(_attempt(works, "2", limits=ev.InvokeLimits(schedule_to_start=0.01)), heard)

    first, last = await heard.of("0"), await heard.of("2")
    assert isinstance(first.error, ev.Error)
    assert first.error.message == "work did not finish within 0.05 s"
    assert await heard.of("1") == ev.Result(ok=3)
    assert isinstance(last.error, ev.Error)
    assert last.error.message == "work was not started within 0.01 s"
    assert (runner.running, runner.waiting) == (0, 0)


async def test_a_body_that_cancels_itself_or_exits_fails_alone(runner: Runner) -> None:
    """Neither the worker nor its process ends with it."""
    heard = Heard()

    async def cancels() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    async def leaves() -> None:
        raise SystemExit(3)

    runner.begin(_attempt(cancels, "0"), heard)
    runner.begin(_attempt(leaves, "1"), heard)

    for path, kind in (("0", "CancelledError"), ("1", "SystemExit")):
        error = (await heard.of(path)).error
        assert isinstance(error, ev.Error)
        assert error.type == kind


def test_a_body_that_is_cancelled_with_everything_else_has_not_failed() -> None:
    """As when a program ends: the step is tried again by whoever takes over."""
    outcomes = list[Outcome]()

    async def lasts() -> None:
        await asyncio.sleep(60)

    async def program() -> None:
        runner = Runner(MemoryStore(), slots=1, threads=0, limits=Limits())
        runner.begin(_attempt(lasts), lambda _attempt, outcome: outcomes.append(outcome))
        await asyncio.sleep(0.01)

    asyncio.run(program())
    assert outcomes == []


async def test_a_body_sees_the_context_it_was_asked_for_in(runner: Runner) -> None:
    """Not that of whoever left the slot it got."""
    heard, gate = Heard(), asyncio.Event()
    where: contextvars.ContextVar[str] = contextvars.ContextVar("where", default="nowhere")

    async def first() -> None:
        await gate.wait()

    async def second() -> str:
        return where.get()

    begun = runner.begin(_attempt(first, "0"), heard)
    runner.begin(_attempt(second, "1"), heard)
    await asyncio.sleep(0)
    elsewhere = contextvars.copy_context()
    elsewhere.run(where.set, "elsewhere")
    elsewhere.run(begun.cancel)

    assert await heard.of("1") == ev.Result(ok="nowhere")
