"""Rows of the journal that are not what was written: found, named, and of no concern to other runs."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from tests.conformance.store.driving import Run, signal
from tidewheel.journal import events as ev
from tidewheel.store.errors import Unreadable
from tidewheel.store.sqlite.store import SqliteStore

UPDATE = "UPDATE tidewheel_journal SET"
CHANGED = "not those that were written"


@pytest.fixture
async def run(store: SqliteStore) -> Run:
    """A run with a few events, and another beside it."""
    await Run(store, "other").start()
    run = Run(store, "r")
    await run.start()
    for number in range(1, 4):
        await run.move(ev.StateSet(key=f"k{number}", value=number))
    return run


def change(file: Path, sql: str) -> None:
    """Change the file behind the store's back; exactly one row is meant."""
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
        assert connection.execute(sql).rowcount == 1


@pytest.mark.parametrize(
    ("damage", "run_seq", "reason"),
    [
        (f"{UPDATE} data = CAST(replace(data, 'k2', 'k3') AS BLOB) WHERE first_seq = 2", 2, CHANGED),
        (f"{UPDATE} data = 'k2' WHERE first_seq = 2", 2, CHANGED),
        (f"{UPDATE} checksum = 1 WHERE first_seq = 3", 3, CHANGED),
        ("DELETE FROM tidewheel_journal WHERE first_seq = 1", 1, "missing"),
        ("DELETE FROM tidewheel_journal WHERE first_seq = 3", 3, "missing"),
    ],
    ids=["flipped", "text", "checksum", "hole", "cut"],
)
async def test_a_row_that_was_changed_is_found(
    run: Run, store: SqliteStore, file: Path, damage: str, run_seq: int, reason: str
) -> None:
    """Even where it could still be read: what is replayed is what ran, or nothing is."""
    change(file, damage)

    with pytest.raises(Unreadable, match=reason) as loading:
        await store.load(run.ref)

    assert (loading.value.run_id, loading.value.run_seq) == ("r", run_seq)
    assert await Run(store, "other").story() == ["ExecutionStarted"]


async def test_an_append_that_has_to_read_a_damaged_row_writes_nothing(
    run: Run, store: SqliteStore, file: Path
) -> None:
    """What landed cannot be told: the moves are not committed, and the run is as it was."""
    await run.tell(signal("a"))
    change(
        file, "UPDATE tidewheel_journal SET checksum = 1 WHERE CAST(data AS TEXT) LIKE '%SignalDelivered%'"
    )
    before = await run.record()

    with pytest.raises(Unreadable):
        await run.move(ev.StateSet(key="more"))

    assert await run.record() == before
