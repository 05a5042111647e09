"""Rows of the journal that are not what was written: found, named, and of no concern to other runs."""

from __future__ import annotations

import psycopg
import pytest

from tests.conformance.store.driving import Run, signal
from tidewheel.journal import events as ev
from tidewheel.store.errors import Unreadable
from tidewheel.store.postgres.store import PostgresStore

UPDATE = "UPDATE tidewheel_journal SET"
CHANGED = "not those that were written"


def change(url: str, sql: str) -> None:
    """Change the database behind the store's back; exactly one row is meant."""
    with psycopg.connect(url, autocommit=True) as connection:
        assert connection.execute(sql.encode()).rowcount == 1


@pytest.mark.parametrize(
    ("damage", "run_seq", "reason"),
    [
        (f"{UPDATE} data = set_byte(data, 28, get_byte(data, 28) # 1) WHERE first_seq = 2", 2, CHANGED),
        (f"{UPDATE} checksum = 1 WHERE first_seq = 3", 3, CHANGED),
        ("DELETE FROM tidewheel_journal WHERE first_seq = 1", 1, "missing"),
        ("DELETE FROM tidewheel_journal WHERE first_seq = 3", 3, "missing"),
        (f"{UPDATE} last_seq = 4 WHERE first_seq = 3", 3, "1 events for 2 places"),
    ],
    ids=["flipped", "checksum", "hole", "cut", "range"],
)
async def test_a_row_that_was_changed_is_found(journals: str, damage: str, run_seq: int, reason: str) -> None:
    """Even where it could still be read: what is replayed is what ran, or nothing is."""
    store = await PostgresStore.open(journals)
    run, other = Run(store, "r"), Run(store, "other")
    await run.start()
    for number in range(1, 4):
        await run.move(ev.StateSet(key=f"k{number}", value=number))
    change(journals, damage)
    await other.start()

    with pytest.raises(Unreadable, match=reason) as loading:
        await store.load(run.ref)

    assert (loading.value.run_id, loading.value.run_seq) == ("r", run_seq)
    assert await other.story() == ["ExecutionStarted"]
    await store.close()


async def test_an_append_that_has_to_read_a_damaged_row_writes_nothing(journals: str) -> None:
    """What landed cannot be told: the moves are not committed, and the run is as it was."""
    store = await PostgresStore.open(journals)
    run = Run(store, "r")
    await run.start()
    await run.tell(signal("a"))
    change(journals, f"{UPDATE} checksum = 1 WHERE first_seq = 1")
    before = await run.record()

    with pytest.raises(Unreadable):
        await run.move(ev.StateSet(key="more"))

    assert await run.record() == before
    await store.close()
