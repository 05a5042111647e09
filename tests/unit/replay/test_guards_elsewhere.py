"""Guards and the rest of the process: the patches of others, their threads and their loops."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.replay.guarded import ORIGINALS, attempt, now_in_force
from tests.unit.replay.journals import Driver, unchecked
from tidewheel import App, Context
from tidewheel.testing import Environment

app = App("guards-elsewhere")


# What others have patched


def fake() -> float:
    """Stand in for a clock or a die, as a test of somebody's application would."""
    return 0.25


def test_a_function_patched_by_somebody_else_stays_patched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lowering the guards gives back what stood there when they were raised."""
    monkeypatch.setattr(random, "random", fake)
    monkeypatch.setattr(time, "time", fake)

    error = attempt(lambda: random.random() + 1).error

    assert error.type == "ForbiddenInWorkflow"
    assert random.random is fake
    assert time.time is fake
    monkeypatch.undo()
    assert attempt(lambda: time.time() + 1).error.type == "ForbiddenInWorkflow"
    assert now_in_force() == ORIGINALS


def meanwhile(fn: Callable[[], float]) -> float:
    """Call *fn* in another thread, while a workflow moves in this one."""
    ask, answered = threading.Event(), threading.Event()
    found: list[float] = []

    def elsewhere() -> None:
        ask.wait(timeout=10)
        try:
            found.append(fn())
        finally:
            answered.set()

    def let_others_look() -> None:
        ask.set()
        answered.wait(timeout=10)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    assert attempt(let_others_look).result == "allowed"
    thread.join()
    return found[0]


def test_elsewhere_somebodys_patch_answers_while_a_workflow_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal hands other threads on to what it replaced, which need not be the original."""
    monkeypatch.setattr(time, "time", fake)

    assert meanwhile(lambda: time.time()) == 0.25  # noqa: PLW0108 - looked up when called


def test_a_patch_made_while_a_workflow_moves_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guards take back only what is still theirs."""
    monkeypatch.setattr(time, "time", time.time)  # undone whatever happens here
    kept: list[Callable[[], float]] = []

    def patch() -> None:
        kept.append(time.time)
        time.time = fake

    driver = attempt(patch)

    assert driver.result == "allowed"
    assert time.time is fake
    # Whoever patched puts back what stood there then: a refusal, which is harmless outside of workflows.
    time.time = kept[0]
    assert time.time() > 1
    assert attempt(lambda: time.time() + 1).error.type == "ForbiddenInWorkflow"
    assert time.time() > 1
    monkeypatch.undo()
    attempt(lambda: None)
    assert now_in_force() == ORIGINALS


def test_a_wrapper_made_while_a_workflow_moves_does_not_go_in_circles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It calls the refusal it found, a later one calls it: each hands on to what it replaced itself."""
    monkeypatch.setattr(time, "time", time.time)  # undone whatever happens here

    def wrap() -> None:
        inner = time.time
        time.time = lambda: -inner()

    attempt(wrap)

    assert time.time() < -1
    assert meanwhile(lambda: time.time()) < -1  # noqa: PLW0108 - looked up when called


def test_a_patch_stays_where_two_threads_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first of them found somebody's function; the last gives it back."""
    monkeypatch.setattr(time, "time", fake)
    first_in, second_done = threading.Event(), threading.Event()

    def wait_for_the_other() -> None:
        first_in.set()
        second_done.wait(timeout=10)

    thread = threading.Thread(target=attempt, args=[wait_for_the_other])
    thread.start()
    first_in.wait(timeout=10)
    attempt(lambda: None)
    assert time.time is not fake
    assert time.time() == 0.25
    second_done.set()
    thread.join()

    assert time.time is fake


def test_a_function_that_somebody_removed_stays_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither does its absence stop a workflow, nor does it come back."""
    monkeypatch.delattr(time, "thread_time")

    driver = attempt(lambda: None)

    assert driver.result == "allowed"
    assert not hasattr(time, "thread_time")
    assert now_in_force() == ORIGINALS


def test_a_name_bound_while_a_workflow_moved_goes_on_working() -> None:
    """A module imported by a workflow may say ``from time import time``: that refuses in workflows only."""
    bound: list[Callable[[], float]] = []

    attempt(lambda: bound.append(time.time))

    assert bound[0]() > 1
    assert attempt(lambda: bound[0]() + 1).error.type == "ForbiddenInWorkflow"


# Elsewhere


async def test_tasks_and_operations_do_what_they_like() -> None:
    """The guards are about workflow code only."""

    @app.task
    async def free() -> bool:
        found: bytes = await asyncio.to_thread(Path(__file__).read_bytes)
        return bool(found) and time.time() > 0 and random.random() < 1 and uuid.uuid4().version == 4

    @app.workflow
    async def order(ctx: Context) -> list[bool]:
        return [await ctx.invoke(free), await ctx.run("now", lambda: time.time() > 0)]

    async with Environment(app) as env:
        handle = await env.client.start(order)
        assert await handle.result() == [True, True]


def test_the_process_keeps_its_functions_outside_movement() -> None:
    """Between activations ``time.time`` is the very object it always was."""
    seen: list[bool] = []

    @unchecked()
    async def order(ctx: Context) -> None:
        seen.append(now_in_force() == ORIGINALS)
        await ctx.sleep(1)

    driver = Driver(order)
    driver.activate()

    assert seen == [False]
    assert now_in_force() == ORIGINALS
    driver.execution.evict()
    assert now_in_force() == ORIGINALS


def test_other_threads_keep_working_while_a_workflow_moves(tmp_path: Path) -> None:
    """A thread that is not moving workflow code gets the originals' answers."""
    ask, answered = threading.Event(), threading.Event()
    found: list[Any] = []

    def elsewhere() -> None:
        ask.wait()
        found.extend([time.time(), random.random(), uuid.uuid4(), os.urandom(1)])
        found.extend([time.gmtime(), random.Random().random(), random.SystemRandom().random()])
        (tmp_path / "file.txt").write_text("written", "utf-8")
        other = threading.Thread(target=found.append, args=("from a thread",))
        other.start()
        other.join()
        answered.set()

    thread = threading.Thread(target=elsewhere)
    thread.start()

    @unchecked()
    async def order(ctx: Context) -> bool:
        ask.set()
        return answered.wait(timeout=10)

    driver = Driver(order)
    driver.activate()
    thread.join()

    assert driver.result is True
    assert len(found) == 8
    driver.end()


def test_two_threads_may_move_workflows_at_once() -> None:
    """The guards come down only when the last workflow has stopped moving."""
    first_in, second_done = threading.Event(), threading.Event()

    @unchecked()
    async def slow(ctx: Context) -> str:
        first_in.set()
        second_done.wait(timeout=10)
        try:
            time.time()
        except Exception as problem:  # noqa: BLE001 - its name is the result
            return type(problem).__name__
        return "allowed"

    one = Driver(slow)
    thread = threading.Thread(target=one.activate)
    thread.start()
    first_in.wait(timeout=10)
    assert attempt(lambda: time.time() + 1).error.type == "ForbiddenInWorkflow"
    second_done.set()
    thread.join()

    assert one.result == "ForbiddenInWorkflow"
    assert now_in_force() == ORIGINALS
    one.end()


def test_the_guards_come_down_after_an_exception() -> None:
    """Whatever stops the code, the process gets its functions back."""

    @unchecked()
    async def order(ctx: Context) -> None:
        raise KeyboardInterrupt

    driver = Driver(order)
    with pytest.raises(KeyboardInterrupt):
        driver.activate()

    assert now_in_force() == ORIGINALS
    driver.execution.evict()


def test_a_verb_is_refused_outside_the_runs_own_code() -> None:
    """ctx belongs to its workflow: an operation or a thread that uses it is told so."""
    kept: list[Context] = []

    @unchecked()
    async def order(ctx: Context) -> None:
        kept.append(ctx)
        await ctx.sleep(1)

    driver = Driver(order)
    driver.activate()

    with pytest.raises(Exception, match="tasks and threads cannot use it"):
        kept[0].now()
    driver.execution.evict()


@app.task
async def work(value: int) -> int:
    """A step."""
    return value


def test_a_step_is_refused_to_another_thread_while_the_code_moves() -> None:
    """The thread that moves a run's code is the only one that may ask for steps, also at that moment."""
    ask, answered = threading.Event(), threading.Event()
    kept: list[Context] = []
    refused: list[BaseException] = []

    def elsewhere() -> None:
        ask.wait(timeout=10)
        try:
            kept[0].invoke(work, 1)
        except Exception as problem:  # noqa: BLE001 - what it is, is looked at below
            refused.append(problem)
        answered.set()

    @unchecked()
    async def order(ctx: Context) -> int:
        kept.append(ctx)
        ask.set()
        answered.wait()
        return await ctx.invoke(work, 2)

    other = threading.Thread(target=elsewhere)
    other.start()
    driver = Driver(order)
    driver.activate()
    other.join()

    assert [str(one) for one in refused] == [
        "ctx belongs to its workflow's own code: tasks and threads cannot use it"
    ]
    assert driver.waits_on == ["0"]
    driver.execution.evict()
