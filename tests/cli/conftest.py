"""What the tests of the command share: journals that were really recorded, and two ways to run it."""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli import shelves, shop
from tests.cli.processes import Service
from tidewheel import RunCancelled, RunFailed
from tidewheel.cli.main import main
from tidewheel.journal import events as ev
from tidewheel.journal.jsonform import dumps
from tidewheel.testing import Environment

Ran = subprocess.CompletedProcess[str]
Run = Callable[..., Ran]
Serve = Callable[..., Service]


async def _recorded() -> dict[str, list[ev.Entry]]:
    """Run each workflow and return its journal by how it ends."""
    found: dict[str, list[ev.Entry]] = {}
    calls = iter([ValueError("no connection"), ConnectionError("reset")])

    def flaky(amount: int) -> int:
        for problem in calls:
            raise problem
        return amount

    async with Environment(shop.app) as env:
        env.fake(shop.charge, flaky)
        done = await env.client.start(shop.order, 7)
        await done.result()
        found["completed"] = await done.journal()

        answered = await env.client.start(shop.approval)
        env.after(10, answered.signal, "approved")
        env.after(60, answered.resolve, "answer", "yes")
        await env.sleep(0)
        found["blocked"] = await answered.journal()
        await answered.result()
        found["answered"] = await answered.journal()

        stopped = await env.client.start(shop.approval)
        env.after(10, stopped.cancel, "changed my mind")
        with pytest.raises(RunCancelled):
            await stopped.result()
        found["cancelled"] = await stopped.journal()

        counted = await env.client.start(shop.counter, 1)
        await counted.result()
        found["counted"] = await counted.journal()
        kinds = [type(entry.event) for entry in found["counted"]]
        found["continued"] = found["counted"][: kinds.index(ev.ExecutionContinued) + 1]

        env.fake(shop.ship, raises=OSError("no van"))
        failed = await env.client.start(shop.broken)
        with pytest.raises(RunFailed):
            await failed.result()
        found["failed"] = await failed.journal()
    return found


@pytest.fixture(scope="session")
def recorded() -> dict[str, list[ev.Entry]]:
    """A journal for each way a run can go."""
    return asyncio.run(_recorded())


@pytest.fixture
def folder(tmp_path: Path, recorded: dict[str, list[ev.Entry]], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: ``shop.py`` and every journal as ``<name>.json``."""
    shutil.copy(Path(__file__).with_name("shop.py"), tmp_path / "shop.py")
    for name, entries in recorded.items():
        (tmp_path / f"{name}.json").write_bytes(dumps(entries))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Run the command in this process, in ``folder``."""
    modules, path = set(sys.modules), list(sys.path)

    def run(*arguments: str, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        code = main(arguments)
        out, err = capsys.readouterr()
        return Ran(arguments, code, out, err)

    yield run

    sys.path[:] = path
    for name in set(sys.modules) - modules:
        # Only what was imported from here: the parts of a library that is imported twice do not fit together.
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and Path(file).resolve().is_relative_to(folder.resolve()):
            del sys.modules[name]


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store that has a run for each way a run can stand."""
    folder = tmp_path_factory.mktemp("filled")
    asyncio.run(shelves.fill(folder))
    return folder


@pytest.fixture
def shelf(folder: Path, filled: Path) -> Path:
    """The current folder, with a copy of that store where the command looks for one, and ``depot.py``."""
    for file in filled.glob("tidewheel.db*"):
        shutil.copy(file, folder / file.name)
    shutil.copy(Path(__file__).with_name("depot.py"), folder / "depot.py")
    return folder


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Start a process of the command that goes on, in the test's own folder, where ``depot.py`` is."""
    shutil.copy(Path(__file__).with_name("depot.py"), tmp_path / "depot.py")
    begun: list[Service] = []

    def serve(*arguments: str) -> Service:
        begun.append(Service(*arguments, folder=tmp_path))
        return begun[-1]

    yield serve

    for service in begun:
        service.end()


@pytest.fixture(autouse=True)
def _no_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the shell of whoever runs the tests has set must not matter."""
    for name in [name for name in os.environ if name.startswith("TIDEWHEEL_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def process(folder: Path) -> Run:
    """Run the real command as a process of its own; the current folder is not on its path."""

    def process(*arguments: str, stdin: bytes = b"", **environment: str) -> Ran:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "tidewheel.cli.main", *arguments],
            input=stdin,
            capture_output=True,
            check=False,
            env={**os.environ, **environment},
        )
        return Ran(arguments, done.returncode, done.stdout.decode(), done.stderr.decode())

    return process
