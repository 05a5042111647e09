"""Guards: what replay cannot repeat is refused in workflow code, and works everywhere else."""

from __future__ import annotations

import asyncio
import copy
import datetime as dt
import glob
import importlib
import importlib.metadata
import logging
import os
import random
import re
import secrets
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import uuid
import zoneinfo
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.replay.guarded import ORIGINALS, attempt, now_in_force
from tests.unit.replay.journals import Driver, unchecked
from tidewheel import App, Context, ForbiddenInWorkflow

app = App("guards")


def _start_thread() -> None:
    threading.Thread(target=print).start()


def _connect() -> None:
    with socket.socket() as plug:
        plug.connect(("127.0.0.1", 9))


def _set_variable() -> None:
    os.environ["TIDEWHEEL_TEST_GUARDS"] = "set"


#: Made elsewhere, which is no excuse to use it in a workflow.
SYSTEM_RANDOM = random.SystemRandom()

#: A file that is not there, so that nothing happens where a refusal is missing.
NOWHERE = "/nowhere/at/all"


#: What a workflow might do, and what it is told to use. Functions are looked up when called.
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "time": (lambda: time.time() + 1, "ctx.now()"),
    "time_ns": (lambda: time.time_ns() + 1, "ctx.now()"),
    "monotonic": (lambda: time.monotonic() + 1, "ctx.now()"),
    "perf_counter": (lambda: time.perf_counter() + 1, "ctx.now()"),
    "process_time": (lambda: time.process_time() + 1, "ctx.now()"),
    "process_time_ns": (lambda: time.process_time_ns() + 1, "ctx.now()"),
    "thread_time": (lambda: time.thread_time() + 1, "ctx.now()"),
    "thread_time_ns": (lambda: time.thread_time_ns() + 1, "ctx.now()"),
    "clock_gettime": (lambda: time.clock_gettime(time.CLOCK_REALTIME), "ctx.now()"),
    "clock_gettime_ns": (lambda: time.clock_gettime_ns(time.CLOCK_REALTIME), "ctx.now()"),
    "gmtime": (lambda: time.gmtime(), "ctx.now()"),  # noqa: PLW0108 - looked up when called
    "gmtime of None": (lambda: time.gmtime(None), "ctx.now()"),
    "localtime": (lambda: time.localtime(), "ctx.now()"),  # noqa: PLW0108 - looked up when called
    "ctime": (lambda: time.ctime(), "ctx.now()"),  # noqa: PLW0108 - looked up when called
    "asctime": (lambda: time.asctime(), "ctx.now()"),  # noqa: PLW0108 - looked up when called
    "strftime": (lambda: time.strftime("%Y"), "ctx.now()"),
    "sleep": (lambda: time.sleep(0), "ctx.sleep("),
    "random": (lambda: random.random() + 1, "ctx.random()"),
    "choice": (lambda: random.choice([1]), "ctx.random()"),
    "shuffle": (lambda: random.shuffle([1]), "ctx.random()"),
    "seed": (lambda: random.seed(1), "ctx.random()"),
    "getstate": (lambda: random.getstate(), "ctx.random()"),  # noqa: PLW0108 - looked up when called
    "lognormvariate": (lambda: random.lognormvariate(0, 1), "ctx.random()"),
    "unseeded generator": (lambda: random.Random(), "ctx.random()"),  # noqa: PLW0108 - as it is written
    "generator seeded with None": (lambda: random.Random(None), "ctx.random()"),
    "generator seeded again": (lambda: random.Random(1).seed(), "ctx.random()"),
    "system generator": (lambda: random.SystemRandom(), "ctx.random()"),  # noqa: PLW0108 - as it is written
    "system generator with a seed": (lambda: random.SystemRandom(1), "ctx.random()"),
    "system generator from elsewhere": (lambda: SYSTEM_RANDOM.randint(1, 6), "ctx.random()"),
    "token_hex": (lambda: secrets.token_hex(), "ctx.uuid()"),  # noqa: PLW0108 - looked up when called
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
    "chmod": (lambda: Path(NOWHERE).chmod(0o600), "ctx.invoke("),
    "chown": (lambda: os.chown(NOWHERE, 1, 1), "ctx.invoke("),
    "link": (lambda: Path(NOWHERE + "/link").hardlink_to(NOWHERE), "ctx.invoke("),
    "symlink": (lambda: Path(NOWHERE).symlink_to("target"), "ctx.invoke("),
    "truncate": (lambda: os.truncate(NOWHERE, 0), "ctx.invoke("),
    "utime": (lambda: os.utime(NOWHERE), "ctx.invoke("),
    "chdir": (lambda: os.chdir(NOWHERE), "ctx.invoke("),
    "environ": (_set_variable, "ctx.invoke("),
    "unsetenv": (lambda: os.unsetenv("TIDEWHEEL_TEST_GUARDS"), "ctx.invoke("),
    "walk": (lambda: list(os.walk(NOWHERE)), "ctx.invoke("),
    "glob": (lambda: glob.glob(NOWHERE + "/*"), "ctx.invoke("),  # noqa: PTH207 - the plain call is what is tried
    "Path.glob": (lambda: list(Path(NOWHERE).glob("*")), "ctx.invoke("),
    "copytree": (lambda: shutil.copytree(NOWHERE, NOWHERE + "/copy"), "ctx.invoke("),
    "move": (lambda: shutil.move(NOWHERE, NOWHERE + "/moved"), "ctx.invoke("),
    "rmtree": (lambda: shutil.rmtree(NOWHERE), "ctx.invoke("),
    "gethostname": (lambda: socket.gethostname(), "ctx.invoke("),  # noqa: PLW0108 - looked up when called
}
#: Linux alone has it.
if hasattr(os, "getrandom"):
    REFUSED["getrandom"] = (lambda: os.getrandom(1), "ctx.uuid()")

#: One wording for every refusal: what, and what to use instead.
WORDING = re.compile(r"[\w.]+\(.*\) cannot be repeated on replay: (use|put|leave|await) .+")


@pytest.mark.parametrize(("fn", "instead"), REFUSED.values(), ids=REFUSED)
def test_workflow_code_is_refused_and_told_what_to_use(fn: Callable[[], Any], instead: str) -> None:
    """Clock, chance, files, sockets, threads and processes raise, naming the durable alternative."""
    error = attempt(fn).error

    assert error.type == "ForbiddenInWorkflow"
    assert instead in error.message
    assert WORDING.fullmatch(error.message)
    assert now_in_force() == ORIGINALS


def test_every_function_of_the_random_module_is_refused() -> None:
    """The names come from the module: a new Python's new distribution is refused too."""
    refused: list[str] = []
    names = [name for name in random.__all__ if not isinstance(getattr(random, name), type)]

    def draw() -> None:
        for name in names:
            try:
                getattr(random, name)()
            except ForbiddenInWorkflow:
                refused.append(name)

    assert attempt(draw).result == "allowed"
    assert refused == names


def test_the_refusal_names_the_file() -> None:
    """A file may be opened deep inside somebody's library: which one it was helps to find it."""
    message = attempt(lambda: Path(NOWHERE).read_text("utf-8")).error.message

    assert message.startswith(f"open({NOWHERE!r}) cannot be repeated on replay: put it in a task")


@pytest.mark.parametrize("name", ["run_in_executor", "run_until_complete", "stop", "set_task_factory"])
def test_the_loop_refuses_in_the_same_words(name: str) -> None:
    """What the loop would do to the world, and what would be done to the loop, reads like the rest."""
    error = attempt(lambda: getattr(asyncio.get_running_loop(), name)(None, print)).error

    assert error.type == "ForbiddenInWorkflow"
    assert error.message.startswith(f"loop.{name}() cannot be repeated on replay: ")
    assert WORDING.fullmatch(error.message)


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


@pytest.mark.parametrize("depth", [1, 50, 150])
def test_a_log_handler_may_be_deep(depth: int) -> None:
    """How many calls lie between the logger and the clock makes no difference."""
    seen: list[float] = []

    def deeper(left: int) -> None:
        if left:
            deeper(left - 1)
        else:
            seen.append(time.time())

    class Deep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            deeper(depth if record.msg else 0)

    logger = logging.getLogger("tests.guards.deep")
    logger.addHandler(handler := Deep())
    driver = attempt(lambda: logger.warning("a line"))
    logger.removeHandler(handler)

    assert driver.result == "allowed"
    assert len(seen) == 1


def test_who_moves_the_workflow_lends_it_no_trust() -> None:
    """A worker that is started while a module is imported still refuses: only the code's own calls count."""
    importing: dict[str, Any] = {"__name__": "importlib._bootstrap"}
    exec("def load(fn): return fn()", importing)  # noqa: S102 - the only way to be called by such a module

    driver = importing["load"](lambda: attempt(lambda: time.time() + 1))

    assert driver.error.type == "ForbiddenInWorkflow"


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


@pytest.fixture
def zone(tmp_path: Path) -> Iterator[str]:
    """A time zone that nobody has loaded yet: one hour ahead of UTC, always."""
    header = b"TZif" + bytes(16) + struct.pack(">6l", 0, 0, 0, 0, 1, 4)
    (tmp_path / "Tests").mkdir()
    (tmp_path / "Tests" / "Ahead").write_bytes(header + struct.pack(">lbb", 3600, 0, 0) + b"AHD\0")
    path = zoneinfo.TZPATH
    zoneinfo.reset_tzpath([tmp_path])
    yield "Tests/Ahead"
    zoneinfo.reset_tzpath(path)


def test_a_time_zone_may_be_loaded(zone: str) -> None:
    """Its rules come from a file the first time, and from memory later; the code sees no difference."""
    offsets: list[dt.timedelta | None] = []

    def load() -> None:
        offsets.append(dt.datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo(zone)).utcoffset())

    assert attempt(load).result == "allowed"
    assert offsets == [dt.timedelta(hours=1)]


def test_a_time_zone_may_not_be_written(zone: str) -> None:
    """Only reading is free of consequences."""
    target = Path(zoneinfo.TZPATH[0]) / "new"

    assert attempt(lambda: target.write_text("written", "utf-8")).error.type == "ForbiddenInWorkflow"
    assert not target.exists()


def test_the_version_of_a_package_may_be_asked() -> None:
    """What is installed comes with the code, like the modules themselves."""
    assert attempt(lambda: importlib.metadata.version("pytest")).result == "allowed"


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


def test_a_generator_may_be_copied() -> None:
    """Copying makes an unseeded one first, and gives it the original's state at once."""
    seen: list[float] = []

    def draw_twice() -> None:
        chance = random.Random(1)
        seen.extend([copy.deepcopy(chance).random(), chance.random()])

    assert attempt(draw_twice).result == "allowed"
    assert seen[0] == seen[1]


def test_a_generator_is_still_what_it_was() -> None:
    """The refusal sits in its seed method, so that classes and their instances keep their kind."""
    kinds: list[bool] = []

    def look() -> None:
        chance = random.Random("seed")
        kinds.extend([type(chance) is random.Random, isinstance(SYSTEM_RANDOM, random.Random)])

    assert attempt(look).result == "allowed"
    assert kinds == [True, True]


#: With a time to convert, these are functions of it alone.
CONVERSIONS: dict[str, Callable[[], Any]] = {
    "gmtime": lambda: time.gmtime(0),
    "localtime": lambda: time.localtime(0),
    "ctime": lambda: time.ctime(0),
    "asctime": lambda: time.asctime((2026, 1, 1, 0, 0, 0, 3, 1, 0)),
    "strftime": lambda: time.strftime("%Y", (2026, 1, 1, 0, 0, 0, 3, 1, 0)),
    "datetime.strftime": lambda: dt.datetime(2026, 1, 1, tzinfo=dt.UTC).strftime("%Y"),
    "datetime.strptime": lambda: dt.datetime.strptime("2026 +0000", "%Y %z"),
}


@pytest.mark.parametrize("convert", CONVERSIONS.values(), ids=CONVERSIONS)
def test_a_given_time_may_be_converted(convert: Callable[[], Any]) -> None:
    """Only without a time do these read the clock."""
    assert attempt(convert).result == "allowed"


def test_a_library_may_ask_how_tasks_are_made() -> None:
    """anyio asks for every task; the answer is asyncio's own: there is no factory."""
    factories: list[object] = []

    driver = attempt(lambda: factories.append(asyncio.get_running_loop().get_task_factory()))

    assert driver.result == "allowed"
    assert factories == [None]
