"""Several processes, and several stores of one process, on one database: locks and deaths are real."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal as signals
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conformance.store.driving import Run, a_start, done, resumes, signal, task, waits
from tests.conformance.store.writing import RUN
from tidewheel.journal import events as ev
from tidewheel.store.append import Append, Fate, Verdict
from tidewheel.store.postgres.store import PostgresStore
from tidewheel.store.protocol import RunFilter, Store
from tidewheel.store.records import RunRef
from tidewheel.store.sqlite.store import SqliteStore
from tidewheel.store.urls import PostgresUrl, SqliteUrl, parse_url

PROGRAM = Path(__file__).parent / "writing.py"
PROCESSES = 3


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """A store that several processes reach."""
    if request.param == "sqlite":
        return f"sqlite:///{request.getfixturevalue('file')}"
    database: str = request.getfixturevalue("journals")
    return database


async def open_at(url: str, clock: Callable[[], float] | None = None) -> Store:
    """Open the store, with a clock of the test's own if it has one."""
    parsed = parse_url(url)
    if isinstance(parsed, PostgresUrl):
        return await PostgresStore.open(parsed.url, clock=clock)
    assert isinstance(parsed, SqliteUrl)
    return await SqliteStore.open(parsed.path, clock=clock or time.time)


@contextlib.contextmanager
def writers(count: int, url: str, *what: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Start *count* processes, and let them begin at the same moment."""
    command = [sys.executable, str(PROGRAM), str(url), *what]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(count)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def said(processes: list[subprocess.Popen[str]]) -> list[list[str]]:
    """Return what each process said in the end."""
    outputs = [process.communicate(timeout=30)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes)
    return [output.split() for output in outputs]


def started(url: str, *names: str) -> None:
    """Start runs in the store, and close it."""

    async def start() -> None:
        store = await open_at(url)
        await store.append([Append(run=RunRef("default", name), start=a_start()) for name in names])
        await store.close()

    asyncio.run(start())


def journal_of(url: str) -> list[ev.Entry]:
    """Open the store anew and read the journal of the run."""

    async def read() -> list[ev.Entry]:
        store = await open_at(url)
        entries = await store.journal(RUN)
        await store.close()
        assert entries is not None
        return entries

    return asyncio.run(read())


def test_a_fact_that_processes_tell_at_once_is_written_once(url: str) -> None:
    """Lock, then look: numbers have no holes, and of each key one process wrote the signal."""
    started(url, "r")

    with writers(PROCESSES, url, "signals", "30") as processes:
        written = [int(word) for (word,) in said(processes)]

    entries = journal_of(url)
    deliveries = [entry.event.delivery_id for entry in entries if isinstance(entry.event, ev.SignalDelivered)]
    assert sum(written) == 30
    assert [entry.run_seq for entry in entries] == list(range(31))
    assert deliveries == list(range(1, 31))


def test_processes_that_start_one_run_start_it_once(url: str) -> None:
    """All of them get the name of the same run."""
    with writers(PROCESSES, url, "starts", "15") as processes:
        answers = said(processes)

    assert sum(int(new) for new, *_ in answers) == 1
    assert len({name for _, *names in answers for name in names}) == 1


def test_processes_that_keep_the_same_store_share_the_work(url: str) -> None:
    """What one has claimed the others do not get."""

    async def long_ago() -> None:
        store = await open_at(url, clock=lambda: 1_000_000.0)
        await store.append([Append(run=RunRef("default", f"r{n}"), start=a_start()) for n in range(30)])
        await store.close()

    asyncio.run(long_ago())

    with writers(PROCESSES, url, "claims", "10") as processes:
        claimed = [name for names in said(processes) for name in names]

    assert sorted(claimed) == sorted(f"r{n}" for n in range(30))


def test_processes_that_open_a_new_file_at_once_all_work(tmp_path: Path) -> None:
    """One of them makes the schema; the others wait for it."""
    with writers(PROCESSES, f"sqlite:///{tmp_path}/new.db", "starts", "1") as processes:
        answers = said(processes)

    assert sum(int(new) for new, *_ in answers) == 1


@pytest.mark.parametrize("answers", [1, 7, 40])
def test_a_process_that_is_killed_leaves_whole_appends(url: str, answers: int) -> None:
    """What was answered is there, what was not is there as a whole or not at all, and the store works on."""
    started(url, "r")

    with writers(1, url, "endless") as (process,):
        assert process.stdout is not None
        answered = [int(process.stdout.readline()) for _ in range(answers)][-1]
        process.send_signal(signals.SIGKILL)
        process.wait()

    entries = journal_of(url)
    payloads = [entry.event.payload for entry in entries if isinstance(entry.event, ev.SignalDelivered)]
    assert [entry.run_seq for entry in entries] == list(range(len(entries)))
    assert payloads == [number for number in range(len(payloads) // 3) for _ in range(3)]
    assert len(payloads) // 3 > answered


def test_a_copy_of_a_dead_processs_file_is_whole(file: Path, tmp_path: Path) -> None:
    """The last commits are in the log alone: it belongs to the file."""
    url = f"sqlite:///{file}"
    started(url, "r")

    with writers(1, url, "endless") as (process,):
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signals.SIGKILL)
        process.wait()
        for part in tmp_path.glob("store.db*"):
            shutil.copy(part, tmp_path / part.name.replace("store", "copy"))

    assert journal_of(f"sqlite:///{tmp_path}/copy.db") == journal_of(url)


async def test_two_stores_on_one_database_see_each_other(url: str) -> None:
    """Of two activations from the same fence one wins, whichever store they came through."""
    first, second = await open_at(url), await open_at(url)
    mine, other = Run(first, "r"), Run(second, "r")
    await mine.start()
    await other.see()

    answers = await asyncio.gather(mine.move(task(), waits("0")), other.move(task(), waits("0")))

    assert sorted(str(answer.fate) for answer in answers) == ["Fate.COMMITTED", "Fate.STALE"]
    await first.close()
    await second.close()


async def test_the_same_fact_through_two_stores_is_written_once(url: str) -> None:
    """A result and a signal that both stores tell at the same moment."""
    first, second = await open_at(url), await open_at(url)
    run = Run(first, "r")
    await run.start()
    await run.move(*[task(str(path)) for path in range(10)])

    verdicts = []
    for path in range(10):
        append = Append(run=RUN, facts=(done(str(path)), signal(str(path))))
        both = await asyncio.gather(first.append([append]), second.append([append]))
        verdicts.append({tuple(answer.verdicts) for (answer,) in both})

    assert verdicts == [{(Verdict.WRITTEN, Verdict.WRITTEN), (Verdict.LATE, Verdict.DUPLICATE)}] * 10
    assert (await run.story()).count("InvokeCompleted") == 10
    await first.close()
    await second.close()


async def test_another_stores_commit_is_noticed(url: str) -> None:
    """Other processes wake by it: nothing is sent between them."""
    first, second = await open_at(url), await open_at(url)
    await Run(first, "r").start()
    await first.changed(1)
    waiting = asyncio.create_task(first.changed(30))
    await asyncio.sleep(0.05)

    await Run(second, "s").start()

    await asyncio.wait_for(waiting, 5)
    await first.close()
    await second.close()


async def test_a_change_between_two_waits_is_not_missed(url: str) -> None:
    """Whoever looks, finds nothing and then waits, learns of what was written in between."""
    first, second = await open_at(url), await open_at(url)
    await first.changed(0.05)

    await Run(second, "s").start()

    await asyncio.wait_for(first.changed(30), 5)
    await first.close()
    await second.close()


async def test_everything_is_there_after_opening_again(url: str) -> None:
    """A restart loses nothing: journal, rows, fence, and what is owed."""
    store = await open_at(url)
    run = Run(store, "r")
    await run.start({"sku": 7})
    await run.move(task("0"), task("1", dispatch="queued"), waits("0", "1"))
    before = await run.see()
    await store.close()

    again = await open_at(url)
    loaded = await again.load(RUN)

    assert loaded is not None
    assert (loaded.run, loaded.entries, loaded.steps) == (before.run, before.entries, before.steps)
    run.store = again
    answer = await run.move(resumes("0"), waits("1"), facts=[done("0")])
    assert answer.fate is Fate.COMMITTED
    assert len(await again.runs(RunFilter(namespace="default"))) == 1
    await again.close()
