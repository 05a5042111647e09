"""Threads and processes of a worker: who gets one, who waits, and what is left for others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from tidewheel import App
from tidewheel.journal import events as ev
from tidewheel.sdk.limits import Limits
from tidewheel.store.memory import MemoryStore
from tidewheel.store.records import RunRef
from tidewheel.workers.lanes import Kind, Lane, capacity, kind_of
from tidewheel.workers.runner import Attempt, Runner

app = App("lanes")
plain_app, heavy_app = App("plain"), App("heavy")
gate = threading.Event()


@app.task
async def awaits() -> int:
    """For the event loop."""
    return 1


@app.task
@plain_app.task
def blocks() -> int:
    """For a thread: it waits to be let go."""
    gate.wait(30)
    return 2


@app.task(process=True)
@heavy_app.task(process=True)
def computes() -> int:
    """For a process."""
    return 3


@pytest.fixture
async def runner() -> AsyncIterator[Runner]:
    """A runner with many slots and a single thread."""
    gate.clear()
    store = MemoryStore()
    made = Runner(store, slots=8, threads=1, limits=Limits())
    yield made
    gate.set()
    await made.close()
    await store.close()


def _attempt(name: str, timeout_s: float | None = None) -> Attempt:
    limits = ev.InvokeLimits(timeout=timeout_s)
    event = ev.InvokeScheduled(promise_id="0", function_name=name, limits=limits)
    run = RunRef("default", "r")
    return Attempt(run=run, event=event, number=1, owner="w", elapsed=0.0, definition=app.tasks[name])


def test_a_function_says_by_its_kind_what_executes_it() -> None:
    """Closures too; one that nobody knows may be anything, and is asked for on the loop."""
    tasks = [kind_of(app.tasks[name]) for name in ("awaits", "blocks", "computes")]

    assert tasks == [Kind.LOOP, Kind.THREAD, Kind.PROCESS]
    assert [kind_of(None, call) for call in (awaits, blocks, None)] == [Kind.LOOP, Kind.THREAD, Kind.LOOP]


def test_a_worker_takes_as_much_in_hand_as_it_can_execute() -> None:
    """What only has plain functions is bounded by its threads, or by its processes."""
    sizes = {"slots": 64, "threads": 16, "processes": 4}

    assert capacity(app, **sizes) == 64
    assert capacity(plain_app, **sizes) == 16
    assert capacity(heavy_app, **sizes) == 4
    assert capacity(heavy_app, slots=2, threads=16, processes=4) == 2
    assert capacity(App("empty"), **sizes) == 64


async def test_so_many_may_wait_and_the_rest_is_for_others() -> None:
    """As many as there are places, beside those who have one."""
    lane = Lane(2)
    places = [await lane.take(), await lane.take()]
    waiting = [asyncio.ensure_future(lane.take())]
    await asyncio.sleep(0)

    rooms = [lane.has_room(ordered) for ordered in (0, 1)]
    places[0].leave()
    await waiting[0]
    rooms.append(lane.has_room(1))

    assert rooms == [True, False, True]


async def test_a_thread_that_outlasts_its_attempt_keeps_its_place(runner: Runner) -> None:
    """The next attempt waits for the thread, and its own time begins only then."""
    first = await runner.execute(_attempt("blocks", timeout_s=0.05))
    second = asyncio.ensure_future(runner.execute(_attempt("blocks", timeout_s=5.0)))
    meanwhile = await runner.execute(_attempt("awaits"))
    began = second.done()
    rooms = [runner.has_room(Kind.THREAD, []), runner.has_room(Kind.LOOP, [])]
    gate.set()

    assert isinstance(first, ev.Result)
    assert isinstance(first.error, ev.Error)
    assert first.error.type == "TimeoutError"
    assert (began, meanwhile) == (False, ev.Result(ok=1))
    assert rooms == [False, True]
    assert await second == ev.Result(ok=2)


async def test_who_gives_up_waiting_for_a_thread_leaves_no_trace(runner: Runner) -> None:
    """Nothing is taken from those who wait on."""
    first = asyncio.ensure_future(runner.execute(_attempt("blocks")))
    await asyncio.sleep(0)
    second = asyncio.ensure_future(runner.execute(_attempt("blocks")))
    third = asyncio.ensure_future(runner.execute(_attempt("blocks")))
    await asyncio.sleep(0)

    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    gate.set()

    assert [await first, await third] == [ev.Result(ok=2)] * 2
    assert (runner.waiting, runner.running) == (0, 0)
