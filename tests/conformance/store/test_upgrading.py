"""A database of the release before is brought to today's schema, and its runs go on where they were.

The rows are those that release 0.3 wrote (``released_rows``): runs that were completed, failed and cancelled,
that wait for a signal, a timer, a promise or a child, that have steps which are executed, queued, tried
again, given up on and parked, that have continued as new, or that nobody has the code of. The worker was
killed. The file also has each run's journal as that release read it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy.engine import make_url

from tests.chaos.checker import breaches
from tests.conformance.store.driving import Clock, Run, done, ends, resumes, signal, task
from tests.conformance.store.inside import Inside, InsidePostgres, InsideSqlite
from tests.conformance.store.released_rows import Released, Row
from tidewheel.journal import events as ev
from tidewheel.journal.public import PublicEvent, published
from tidewheel.journal.verify import verify
from tidewheel.store.append import Fact, Fate, Fired, Resolved, Verdict
from tidewheel.store.columns import RUN, STEP, TIMER, Columns
from tidewheel.store.errors import SchemaMismatch, Unreadable
from tidewheel.store.migrations import migrate, schema_status
from tidewheel.store.postgres.store import PostgresStore
from tidewheel.store.publishing import public_events
from tidewheel.store.records import RunRef
from tidewheel.store.revision import NEWEST
from tidewheel.store.sqlite.store import SqliteStore

#: Written step by step, as no workflow's code would have it: they do not keep all rules.
WRITTEN_BY_HAND = {"by-hand", "at-once"}
#: A partition of the journal as the release before made them; all runs are in it.
PARTITION = r"""
CREATE TABLE tidewheel_events_20260226 PARTITION OF tidewheel_events
   FOR VALUES FROM ('\x019c973ec80000000000000000000000') TO ('\x019cbb4b4c0000000000000000000000')
"""


@pytest.fixture
def released() -> Released:
    """What the release before left behind."""
    return Released("0001")


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}"
    found: str = request.getfixturevalue("fresh_postgres")
    return found


@pytest.fixture
async def inside(url: str, released: Released, clock: Clock) -> AsyncIterator[Inside]:
    """Today's store over the rows of the release before."""
    write(released, url)
    applied = migrate(url)
    assert (applied[0], applied[-1]) == ("0002", NEWEST)
    clock.advance(60)
    if url.startswith("sqlite"):
        path = Path(url.removeprefix("sqlite:///"))
        sqlite = await SqliteStore.open(path, clock=clock, auto_migrate=False)
        yield InsideSqlite(sqlite, path)
        await sqlite.close()
        return
    postgres = await PostgresStore.open(url, clock=clock)
    yield InsidePostgres(postgres, url)
    await postgres.close()


def write(released: Released, url: str) -> None:
    """Make the database at *url* what it was under the release before."""
    if url.startswith("sqlite"):
        released.write(url)
    else:
        driver = make_url(url).set(drivername="postgresql+psycopg")
        released.write(driver.render_as_string(hide_password=False), PARTITION)


def as_row(columns: Columns[Any], record: Any) -> Row:
    """Return *record* by the names of its columns."""
    return dict(zip(columns.names, columns.row(record), strict=True))


def own(row: Row) -> Row:
    """Return a row of the release before without what says whose it is."""
    return {name: value for name, value in row.items() if name != "run_key"}


async def told(inside: Inside, run: Run) -> list[PublicEvent]:
    """Return what the rows of the journal publish, each read by itself."""
    entries, record = await run.journal(), await run.record()
    first = entries[0].event
    assert isinstance(first, ev.ExecutionStarted)
    found: list[PublicEvent] = []
    for row in inside.passages(run.ref):
        if row.public is not None:
            passage = entries[row.first_seq : row.last_seq + 1]
            found += public_events(record.ref, record.workflow, row.public, passage, first.input)
    return found


async def check_public(inside: Inside, run: Run) -> None:
    """Compare what the rows of *run* publish with the fold, and what the bus is owed with the rows."""
    public = await told(inside, run)
    publishing = [row for row in inside.passages(run.ref) if row.public is not None]

    assert public == published(await run.journal(), *reversed(run.ref))
    assert inside.outbox(run.ref) == [(row.first_seq, row.last_seq) for row in publishing]
    assert (await run.record()).prev_seq == public[-1].run_seq


async def test_journals_are_what_they_were(inside: Inside, released: Released) -> None:
    """Event for event, with their places and times; and they keep the rules as they did."""
    read = {ref: await inside.store.journal(ref) for ref in released.journals}

    assert read == released.journals
    lawful = [entries for ref, entries in released.journals.items() if ref.run_id not in WRITTEN_BY_HAND]
    assert [breach for entries in lawful for breach in verify(entries)] == []


async def test_what_was_published_is_still_published(inside: Inside, released: Released) -> None:
    """The same events under the same keys, which readers know them by, and all of it is owed to the bus."""
    for ref in released.journals:
        public = await told(inside, Run(inside.store, ref.run_id, ref.namespace))
        rows = [row for row in released.of_run("events", ref) if row["public_key"] is not None]

        assert [(one.run_seq, one.prev_seq, one.idempotency_key) for one in public] == [
            (row["run_seq"], row["prev_seq"], row["public_key"].hex()) for row in rows
        ]
        await check_public(inside, Run(inside.store, ref.run_id, ref.namespace))
        owed = inside.outbox(ref)
        for row in released.of_run("outbox", ref):
            covering = [one for one in owed if one[0] <= row["first_seq"] <= row["last_seq"] <= one[1]]
            assert len(covering) == 1


async def test_runs_are_as_they_were(inside: Inside, released: Released) -> None:
    """Every column, and those that are new say what was not there before."""
    promising = {row["run_key"] for row in released.tables["promises"]}
    for ref in released.journals:
        (before,) = released.of_run("runs", ref)

        after = as_row(RUN, await Run(inside.store, ref.run_id, ref.namespace).record())

        new = {"inline": "[]", "owner": None, "has_promises": before["run_key"] in promising}
        new |= {"place": None, "admit_at": None}
        assert after == own(before) | new | {"key": before["run_key"]}


async def test_what_is_open_is_as_it_was(inside: Inside, released: Released) -> None:
    """Steps and timers are found with all that was known of them, and their worker is one that is gone."""
    for ref in released.journals:
        loaded = await inside.store.load(ref)

        assert loaded is not None
        steps = {step.path: as_row(STEP, step) for step in loaded.steps}
        expected = {row["path"]: own(row) for row in released.of_run("steps", ref)}
        for row in expected.values():
            row["told"] = row.pop("started_id") is not None
        assert steps == expected
        timers = [as_row(TIMER, timer) for timer in loaded.timers]
        assert timers == [own(row) for row in released.of_run("timers", ref)]
        assert loaded.alive == frozenset()
    assert [worker.worker_id for worker in await inside.store.workers()] == ["worker-1"]


async def test_a_signal_is_written_after_what_is_there(inside: Inside, released: Released) -> None:
    """One that came before the upgrade is known: its repetition is told from a new one."""
    run = Run(inside.store, "waiting")
    before = released.journals[run.ref]

    repeated = await run.tell(signal("signal=once", name="unheard"))
    answer = await run.tell(signal("signal=new", name="go"))

    assert repeated.verdicts == [Verdict.DUPLICATE]
    assert (answer.verdicts, answer.last_seq) == ([Verdict.WRITTEN], before[-1].run_seq + 1)
    journal = await run.journal()
    assert journal[:-1] == before
    assert isinstance(journal[-1].event, ev.SignalDelivered)


async def test_what_was_waited_for_arrives(inside: Inside, released: Released) -> None:
    """The results of steps that were begun before, a timer, a promise: each is the run's next event."""
    facts: dict[str, Fact] = {
        "executing": done("0"),
        "beating": done("0"),
        "many": done("9"),
        "impatient": done("0", attempt=1),
        "asleep": Fired(path="0"),
        "deciding": Resolved(name="decision", result=ev.Result(ok=1), key="k"),
    }
    for run_id, fact in facts.items():
        run = Run(inside.store, run_id)

        answer = await run.tell(fact)

        assert answer.verdicts == [Verdict.WRITTEN]
        assert (await run.journal())[: len(released.journals[run.ref])] == released.journals[run.ref]
        assert answer.last_seq >= released.journals[run.ref][-1].run_seq + 1
        await check_public(inside, run)


async def test_a_child_that_ends_tells_its_parent(inside: Inside) -> None:
    """Although both were started under the release before."""
    child, parent = Run(inside.store, "child-open:0"), Run(inside.store, "child-open")
    await child.tell(signal("k", name="go"))
    await child.see()

    answer = await child.move(resumes("0.1"), ends("done"))

    assert answer.fate is Fate.COMMITTED
    assert (await parent.story())[-1] == "InvokeCompleted"
    await check_public(inside, child)
    await check_public(inside, parent)


@pytest.mark.parametrize("run_id", ["by-hand", "at-once"])
async def test_keys_that_were_used_are_known(inside: Inside, run_id: str) -> None:
    """A step that takes one again is published under another, and so is one that is known by its path."""
    run = Run(inside.store, run_id)
    await run.see()

    answer = await run.move(task("8", key="a"), task("9", key="b"), task("10", key="9"))
    await run.tell(done("8"), done("9"), done("10"))

    assert answer.fate is Fate.COMMITTED
    await check_public(inside, run)


@pytest.mark.parametrize(
    ("damage", "place"), [("changed", 3), ("changed", 2), ("missing", 3), ("missing", 2), ("unknown", 3)]
)
async def test_what_could_not_be_read_is_told_as_before(
    url: str, released: Released, damage: str, place: int
) -> None:
    """It does not stop the upgrade, the error names the event, and other runs are not concerned."""
    ref, other = RunRef("default", "completed"), RunRef("default", "failed")
    row = released.of_run("events", ref)[place]
    if damage == "changed":
        row["data"] += b" "
    elif damage == "unknown":
        row["type"] = "Unheard"
    else:
        released.tables["events"].remove(row)
    write(released, url)

    migrate(url)

    store = await (
        SqliteStore.open(url.removeprefix("sqlite:///")) if "sqlite" in url else PostgresStore.open(url)
    )
    with pytest.raises(Unreadable) as caught:
        await store.journal(ref)
    assert caught.value.run_seq == place
    assert await store.journal(other) == released.journals[other]
    await store.close()


# Postgres


def contents(url: str) -> dict[str, list[Any]]:
    """Return all rows of all tables."""
    names = "SELECT relname FROM pg_class WHERE relname LIKE 'tidewheel_%' AND relkind = 'r' ORDER BY 1"
    with psycopg.connect(url) as connection:
        tables = [name for (name,) in connection.execute(names)]
        return {
            name: connection.execute(f"SELECT * FROM {name} ORDER BY 1, 2".encode()).fetchall()  # noqa: S608 - our own names
            for name in tables
            if name != "tidewheel_version"
        }


def test_a_worker_of_the_release_before_is_not_pushed_aside(fresh_postgres: str, released: Released) -> None:
    """Nothing is changed while one is alive: it could not write to what it would find."""
    released.tables["workers"][0]["alive_until"] = 4_000_000_000_000_000
    write(released, fresh_postgres)
    before = contents(fresh_postgres)

    with pytest.raises(SchemaMismatch, match=r"worker-1.*stop all workers"):
        migrate(fresh_postgres)

    assert schema_status(fresh_postgres).current == "0001"
    assert contents(fresh_postgres) == before


def test_a_journal_stays_in_its_partitions(fresh_postgres: str, released: Released) -> None:
    """They are retired by age, as they would have been."""
    write(released, fresh_postgres)

    migrate(fresh_postgres)

    rows = contents(fresh_postgres)
    assert {bytes(row[0]) for row in rows["tidewheel_journal_20260226"]} == {
        row["run_key"] for row in released.tables["runs"]
    }
    assert rows["tidewheel_journal_rest"] == []
    assert [name for name in rows if "events" in name] == []


def test_events_whose_run_was_retired_are_left_behind(fresh_postgres: str, released: Released) -> None:
    """They stay until their partition is dropped, and nobody finds them."""
    released.retire(RunRef("default", "failed"))
    write(released, fresh_postgres)

    migrate(fresh_postgres)

    keys = {bytes(row[0]) for row in contents(fresh_postgres)["tidewheel_journal_20260226"]}
    assert keys == {row["run_key"] for row in released.tables["runs"]}


def test_the_checker_finds_nothing(fresh_postgres: str, released: Released) -> None:
    """What storms are judged by holds, but that all runs end. A NUL is nothing that SQL can read."""
    released.retire(RunRef("default", "completed"))
    write(released, fresh_postgres)

    migrate(fresh_postgres)

    found = [breach for breach in breaches(fresh_postgres) if breach.rule != "every_run_has_ended"]
    assert found == []
