"""Guards: what replay cannot repeat is refused in workflow code, and works everywhere else."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.replay.journals import Driver, unchecked
from tidewheel import App, Context
from tidewheel.testing import Environment

app = App("guards")

ORIGINALS = {
    "time": time.time,
    "sleep": time.sleep,
    "monotonic": time.monotonic,
    "random": random.random,
    "uuid4": uuid.uuid4,
    "urandom": os.urandom,
}


def now_in_force() -> dict[str, Any]:
    """The functions as the process sees them now."""
    return {
        "time": time.time,
        "sleep": time.sleep,
        "monotonic": time.monotonic,
        "random": random.random,
        "uuid4": uuid.uuid4,
        "urandom": os.urandom,
    }


def attempt(fn: Callable[[], Any]) -> Driver:
    """Call *fn* inside workflow code."""

    @unchecked()
    async def order(ctx: Context) -> str:
        fn()
        return "allowed"

    driver = Driver(order)
    driver.activate()
    driver.end()
    return driver


def _start_thread() -> None:
    threading.Thread(target=print).start()


def _connect() -> None:
    with socket.socket() as plug:
        plug.connect(("127.0.0.1", 9))


#: What a workflow might do, and what it is told to use. Functions are looked up when called.
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "time": (lambda: time.time() + 1, "ctx.now()"),
    "time_ns": (lambda: time.time_ns() + 1, "ctx.now()"),
    "monotonic": (lambda: time.monotonic() + 1, "ctx.now()"),
    "perf_counter": (lambda: time.perf_counter() + 1, "ctx.now()"),
    "sleep": (lambda: time.sleep(0), "ctx.sleep("),
    "random": (lambda: random.random() + 1, "ctx.random()"),
    "choice": (lambda: random.choice([1]), "ctx.random()"),
    "shuffle": (lambda: random.shuffle([1]), "ctx.random()"),
    "uuid4": (lambda: str(uuid.uuid4()), "ctx.uuid()"),
    "uuid1": (lambda: str(uuid.uuid1()), "ctx.uuid()"),
    "urandom": (lambda: os.urandom(1), "ctx.uuid()"),
    "open": (lambda: Path(__file__).read_text("utf-8"), "ctx.invoke("),
    "listdir": (lambda: os.listdir("."), "ctx.invoke("),  # noqa: PTH208 - the plain call is what is tried
    "connect": (_connect, "ctx.invoke("),
    "getaddrinfo": (lambda: socket.getaddrinfo("localhost", 80), "ctx.invoke("),
    "thread": (_start_thread, "ctx.invoke("),
    "subprocess": (lambda: subprocess.run(["true"], check=False), "ctx.invoke("),  # noqa: S607 - never executed
    "system": (lambda: os.system("true"), "ctx.invoke("),  # noqa: S605, S607 - never executed
    "mkdtemp": (lambda: tempfile.mkdtemp(prefix="x"), "ctx.invoke("),
}


@pytest.mark.parametrize(("fn", "instead"), REFUSED.values(), ids=REFUSED)
def test_workflow_code_is_refused_and_told_what_to_use(fn: Callable[[], Any], instead: str) -> None:
    """Clock, chance, files, sockets, threads and processes raise, naming the durable alternative."""
    error = attempt(fn).error

    assert error.type == "ForbiddenInWorkflow"
    assert instead in error.message
    assert now_in_force() == ORIGINALS


def test_branches_and_callbacks_are_workflow_code_too() -> None:
    """The refusal holds wherever the loop's code runs."""

    @unchecked()
    async def order(ctx: Context) -> list[str]:
        async def branch() -> None:
            time.time()

        found = await asyncio.gather(branch(), return_exceptions=True)
        return [type(one).__name__ for one in found]

    driver = Driver(order)
    driver.activate()

    assert driver.result == ["ForbiddenInWorkflow"]
    driver.end()


# What is allowed


def test_logging_is_allowed(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """A log record has a time and a traceback of its own; neither reaches the code's decisions."""
    target = logging.FileHandler(tmp_path / "log.txt", delay=True)
    logger = logging.getLogger("tests.guards")
    logger.addHandler(target)

    def log() -> None:
        logger.warning("a line")
        try:
            raise ValueError("shown")
        except ValueError:
            logger.exception("with a traceback")

    driver = attempt(log)
    logger.removeHandler(target)
    target.close()

    assert driver.result == "allowed"
    assert "ValueError: shown" in (tmp_path / "log.txt").read_text("utf-8")
    assert "a line" in caplog.text


@pytest.fixture
def lazily_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module that nobody has imported yet, and that does what modules do when imported."""
    source = "import random, time, uuid\nLOADED = time.time()\nR = random.Random()\nU = uuid.uuid4()\n"
    (tmp_path / "lazily_imported_module.py").write_text(source, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "lazily_imported_module"
    sys.modules.pop("lazily_imported_module", None)


def test_lazy_imports_are_allowed(lazily_imported: str) -> None:
    """Importing reads files, and a module may look at the clock while it loads."""
    assert attempt(lambda: importlib.import_module(lazily_imported)).result == "allowed"


def test_tracebacks_are_allowed() -> None:
    """Formatting an exception quotes source lines, which reads files."""

    def show() -> None:
        try:
            raise ValueError("shown")
        except ValueError:
            assert "ValueError: shown" in traceback.format_exc()

    assert attempt(show).result == "allowed"


def test_a_seeded_generator_is_allowed() -> None:
    """random.Random(seed) gives the same on every replay."""

    @unchecked()
    async def order(ctx: Context) -> list[int]:
        chance = random.Random(ctx.random())
        return [chance.randint(1, 6), chance.choice([1, 2, 3])]

    driver = Driver(order)
    driver.activate()

    assert len(driver.result) == 2
    driver.end()


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
    assert len(found) == 5
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
