"""Append-only by privilege: what each role may do in Postgres, and what it may not."""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import sql

from tests.conformance.store.driving import Run, done, ends, resumes, signal, task, waits
from tidewheel.journal.snapshot import snapshot_of
from tidewheel.store.admission import QueueLimit
from tidewheel.store.errors import StoreUnavailable
from tidewheel.store.migrations import migrate
from tidewheel.store.postgres.store import PostgresStore
from tidewheel.store.protocol import RunFilter
from tidewheel.store.records import WorkerRecord
from tidewheel.store.revision import ROLES
from tidewheel.store.run_queue import dequeue_and_start
from tidewheel.store.snapshots import Asked, going_on, in_place_of

FORBIDDEN = [
    "UPDATE tidewheel_journal SET at = 0",
    "DELETE FROM tidewheel_journal",
    "TRUNCATE tidewheel_journal",
    "DROP TABLE tidewheel_journal",
    "DELETE FROM tidewheel_runs",
    "ALTER TABLE tidewheel_runs ADD COLUMN more text",
    "UPDATE tidewheel_version SET version_num = '9999'",
    "SELECT tidewheel_delete_v2('{}')",
]
LIMIT = QueueLimit(namespace="default", queue="main", max_running=1)
LATER = dt.datetime(2100, 1, 1, tzinfo=dt.UTC)


class Users:
    """Users of one database, each with one of the roles."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._made: list[str] = []

    def url_as(self, role: str) -> str:
        """Return the URL of the database for a new user who has *role*."""
        name, password = f"{role}_{secrets.token_hex(4)}", secrets.token_hex(8)
        statement = sql.SQL("CREATE USER {} PASSWORD {} IN ROLE {}").format(
            sql.Identifier(name), sql.Literal(password), sql.Identifier(role)
        )
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(statement)
        self._made.append(name)
        parts = urlsplit(self._url)
        return urlunsplit(parts._replace(netloc=f"{name}:{password}@{parts.netloc.rpartition('@')[2]}"))

    def drop(self) -> None:
        """Leave no user behind: they are the whole server's."""
        with psycopg.connect(self._url, autocommit=True) as connection:
            for name in self._made:
                connection.execute(sql.SQL("DROP USER {}").format(sql.Identifier(name)))


@pytest.fixture
def users(journals: str) -> Iterator[Users]:
    """A database whose roles were made."""
    migrate(journals, roles=True)
    made = Users(journals)
    yield made
    made.drop()


def refusals(url: str, statements: list[str]) -> list[str]:
    """Execute *statements*, each alone; return the SQLSTATE of each, empty where it was not refused."""
    states = []
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            try:
                connection.execute(statement.encode())
            except psycopg.Error as error:
                states.append(error.sqlstate or "")
            else:
                states.append("")
    return states


@pytest.mark.parametrize("role", [role for role in ROLES if role != "tidewheel_migrator"])
def test_nobody_but_the_migrator_changes_what_was_written(users: Users, role: str) -> None:
    """Events are inserted and read; runs are deleted by functions alone."""
    states = refusals(users.url_as(role), FORBIDDEN)

    assert states == ["42501"] * len(FORBIDDEN)


@pytest.mark.parametrize("role", ["tidewheel_worker", "tidewheel_keeper"])
async def test_a_worker_and_a_keeper_can_do_their_work(users: Users, role: str) -> None:
    """Every kind of write that a run needs, over a user with that role alone."""
    store = await PostgresStore.open(users.url_as(role))
    run = Run(store, "r")
    await run.start(idempotency_key="once")
    await run.move(task("0", key="k"), task("1", dispatch="queued"), waits("0", "1"))
    await run.tell(signal(), done("0"))
    await store.claim_due(limit=10)
    now = await store.now()
    worker = WorkerRecord(
        worker_id="w", host="h", pid=1, began="", queues=("q",), workflows=(), started_at=now, alive_until=now
    )
    await store.register(worker)
    await store.renew("w", 10.0)
    await store.give_up(["w"])
    await run.see()

    answer = await run.move(resumes("0"), ends())

    assert len(await store.runs(RunFilter(namespace="default"))) == 1
    assert (await run.record()).ended
    assert answer.ended
    await store.close()


async def test_only_a_keeper_retires_runs_and_makes_partitions(users: Users) -> None:
    """And it does so through the functions, which delete nothing that has not ended."""
    keeper = await PostgresStore.open(users.url_as("tidewheel_keeper"))
    worker = await PostgresStore.open(users.url_as("tidewheel_worker"))
    ended, still_open = Run(worker, "ended"), Run(worker, "open")
    await ended.start()
    await ended.move(ends())
    await still_open.start()

    with pytest.raises(StoreUnavailable, match="denies this user"):
        await worker.purge("default", ended_before=LATER, limit=10)
    with pytest.raises(StoreUnavailable, match="denies this user"):
        await worker.tend("default", ended_before=None)
    deleted = await keeper.purge("default", ended_before=LATER, limit=10)
    await keeper.tend("default", ended_before=None)

    assert deleted == 1
    assert [run.run_id for run in await worker.runs(RunFilter(namespace="default"))] == ["open"]
    await keeper.close()
    await worker.close()


async def test_a_projector_keeps_snapshots_and_touches_nothing_else(users: Users) -> None:
    """It reads journals, and goes on from snapshots, replaces them, and looks after them."""
    store = await PostgresStore.open(users.url_as("tidewheel_projector"))
    worker = await PostgresStore.open(users.url_as("tidewheel_worker"))
    run = Run(worker, "r")
    await run.start()
    snapshot = snapshot_of(await run.journal(), "r")
    snapshots = store.snapshots
    assert await snapshots.attend("default", "p", 5.0) == ["p"]

    for change in (going_on, in_place_of):
        (before,) = await snapshots.load([Asked(run.ref)])
        assert before is not None
        assert await snapshots.save([change(before, snapshot)]) == [True]
    await snapshots.look("default", after=None, limit=10, quiet_since=LATER)
    await snapshots.leave("default", "p")

    assert await snapshots.read(run.ref) == snapshot
    with pytest.raises(StoreUnavailable, match="denies this user"):
        await Run(store, "other").start()
    await store.close()
    await worker.close()


async def test_a_reader_reads_and_writes_nothing(users: Users) -> None:
    """What it asks for beyond that is refused with advice, and nothing is written."""
    store = await PostgresStore.open(users.url_as("tidewheel_reader"))
    run = Run(store, "r")

    with pytest.raises(StoreUnavailable, match=r"--roles.*nothing was written"):
        await run.start()

    assert await store.runs(RunFilter(namespace="default")) == []
    await store.close()


def test_a_relay_empties_the_outbox_and_nothing_else(users: Users) -> None:
    """It claims, puts off and deletes what the event bus was owed."""
    url = users.url_as("tidewheel_relay")

    states = refusals(url, ["UPDATE tidewheel_outbox SET attempts = 1", "DELETE FROM tidewheel_outbox"])
    others = refusals(
        url, ["INSERT INTO tidewheel_outbox VALUES ('', 0, 0, 0, 0)", "DELETE FROM tidewheel_steps"]
    )

    assert states == ["", ""]
    assert others == ["42501", "42501"]


def test_a_migrator_migrates(users: Users) -> None:
    """It owns everything, so that later releases need no superuser."""
    url = users.url_as("tidewheel_migrator")

    applied = migrate(url)

    assert applied == []
    assert refusals(url, ["ALTER TABLE tidewheel_runs ADD COLUMN more text"]) == [""]


def test_making_the_roles_again_changes_nothing(users: Users, journals: str) -> None:
    """It is safe to do with every deploy."""
    url = users.url_as("tidewheel_worker")

    migrate(journals, roles=True)

    assert refusals(url, FORBIDDEN[:2]) == ["42501", "42501"]


def test_roles_that_are_there_are_granted_what_a_migration_makes(users: Users, journals: str) -> None:
    """Without being asked for again: workers of a new release could not use a table it made."""
    url, reads = users.url_as("tidewheel_worker"), ["SELECT FROM tidewheel_journal LIMIT 1"]
    with psycopg.connect(journals, autocommit=True) as connection:
        connection.execute("REVOKE ALL ON tidewheel_journal FROM tidewheel_worker")
    before = refusals(url, reads)

    migrate(journals)

    assert (before, refusals(url, reads)) == (["42501"], [""])


async def test_a_worker_keeps_to_limits_that_only_a_keeper_sets(users: Users) -> None:
    """It counts and admits under the lock of a row that it cannot change."""
    keeper = await PostgresStore.open(users.url_as("tidewheel_keeper"))
    worker = await PostgresStore.open(users.url_as("tidewheel_worker"))
    await keeper.admission.put(LIMIT)
    first, second = Run(worker, "a"), Run(worker, "b")

    await first.start()
    await second.start()
    await first.move(ends())
    (found,) = await dequeue_and_start(worker)
    with pytest.raises(StoreUnavailable, match="permission denied"):
        await worker.admission.put(LIMIT)
    with pytest.raises(StoreUnavailable, match="permission denied"):
        await worker.admission.remove("default", "main")

    assert (found.run_id, found.status) == ("b", "STARTED")
    await worker.close()
    await keeper.close()
