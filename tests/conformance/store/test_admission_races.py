"""Several processes start and admit runs of one queue at once: its limit holds."""

from __future__ import annotations

import asyncio

from tests.conformance.store.driving import a_start
from tests.conformance.store.test_processes import open_at, said, url, writers
from tidewheel.store.admission import QueueLimit, QueueLoad
from tidewheel.store.append import Append
from tidewheel.store.protocol import Store
from tidewheel.store.records import RunRef

__all__ = ["url"]

KEEPERS = 10
CLIENTS = 6
RUNS = 24
NAMES = [f"r{number:02}" for number in range(RUNS)]


async def _limit(store: Store, max_running: int, max_pending: int = 100) -> None:
    await store.admission.put(
        QueueLimit(namespace="default", queue="main", max_running=max_running, max_pending=max_pending)
    )


async def _queue_up(url: str) -> None:
    """Queue runs while nothing may begin, then let three at a time."""
    store = await open_at(url)
    await _limit(store, 0)
    await store.append([Append(run=RunRef("default", name), start=a_start()) for name in NAMES])
    await _limit(store, 3)
    await store.close()


async def _look(url: str) -> tuple[list[QueueLoad], dict[str, list[str]]]:
    """Return the load in the end, and the events of each run."""
    store = await open_at(url)
    loads = list(await store.admission.loads("default"))
    stories = {}
    for name in NAMES:
        entries = await store.journal(RunRef("default", name)) or []
        stories[name] = [type(entry.event).__name__ for entry in entries]
    await store.close()
    return loads, stories


def test_ten_keepers_start_no_run_twice_nor_more_than_may_run(url: str) -> None:
    """Every run begins once, in one of them, and never are there more than three."""
    asyncio.run(_queue_up(url))

    with writers(KEEPERS, url, "admits") as processes:
        answers = said(processes)

    loads, stories = asyncio.run(_look(url))
    begun = [name for _, *names in answers for name in names]
    assert sorted(begun) == NAMES
    assert max(int(most) for most, *_ in answers) <= 3
    assert [(load.running, load.pending) for load in loads] == [(0, 0)]
    assert set(map(tuple, stories.values())) == {("ExecutionStarted", "RunAdmitted", "ExecutionCompleted")}


def test_clients_that_start_at_once_do_not_exceed_the_limit(url: str) -> None:
    """Of all that were asked for as many run as may, as many wait as may, and the others were refused."""

    async def limit() -> None:
        store = await open_at(url)
        await _limit(store, 30, max_pending=30)
        await store.close()

    asyncio.run(limit())

    with writers(CLIENTS, url, "rushes", "20") as processes:
        answers = said(processes)

    found = [sum(int(answer[place]) for answer in answers) for place in range(3)]
    assert found == [30, 30, 60]
