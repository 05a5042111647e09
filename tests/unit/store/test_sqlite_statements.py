"""The statements and the records fit each other, and each statement finds its rows by an index."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tidewheel.store.sqlite
from tidewheel.store.columns import RUN, STEP, TIMER, WORKER, Columns, micros, moment
from tidewheel.store.records import InlineStep, RunRecord, StepRecord, TimerRecord, WorkerRecord
from tidewheel.store.statements import statements

FOLDER = Path(tidewheel.store.sqlite.__file__).parent / "sql"
ALL = [(file.stem, name) for file in sorted(FOLDER.glob("*.sql")) for name in statements("sqlite", file.stem)]
AT = dt.datetime(2026, 3, 1, 12, 0, 0, 123457, tzinfo=dt.UTC)


def some_values(sql: str) -> Any:
    """Return a value for each place in *sql*."""
    places = set(re.findall(r":\w+", sql))
    return {place[1:]: 0 for place in places} if places else [0] * sql.count("?")


def planned(file: Path, sql: str) -> list[str]:
    """Return how SQLite would execute *sql*."""
    values = some_values(sql)
    with contextlib.closing(sqlite3.connect(file)) as connection:
        return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)]


@pytest.mark.parametrize(("group", "name"), ALL)
def test_a_statement_finds_its_rows_by_an_index(blank: Path, group: str, name: str) -> None:
    """None of them reads a whole table, but for the few workers and what a short list in JSON says.

    How much is owed is counted up to a bound; whoever has a projection forgotten reads all runs after that.
    """
    plan = planned(blank, statements("sqlite", group)[name])

    scans = [line for line in plan if line.startswith("SCAN") and "USING" not in line]
    harmless = ["SCAN json_each", "SCAN (subquery", "SCAN CONSTANT ROW", "SCAN owners"]
    harmless += ["SCAN pragma", "SCAN waiting"]
    if name == "backlog":
        harmless.append("SCAN tidewheel_outbox")
    if name == "forget":
        harmless.append("SCAN tidewheel_projections")
    assert [line for line in scans if not line.startswith(tuple(harmless)) and "workers" not in line] == []
    assert [
        line
        for line in plan
        if "TEMP B-TREE" in line
        and name not in ("steps", "inline_steps", "timers", "workers", "alive_owners", "lost_owners")
    ] == []


@pytest.mark.parametrize(
    ("columns", "group", "name", "first"),
    [
        (RUN, "runs", "by_ref", 0),
        (RUN, "runs", "by_key", 0),
        (RUN, "runs", "by_idempotency_key", 0),
        (RUN, "runs", "list", 0),
        (RUN, "runs", "list_parked", 0),
        (STEP, "open", "step", 0),
        (STEP, "open", "steps", 0),
        (STEP, "keeping", "due_steps", 5),
        (TIMER, "open", "timer", 0),
        (TIMER, "open", "timers", 0),
        (WORKER, "keeping", "workers", 0),
    ],
)
def test_a_statement_reads_the_fields_in_their_order(
    blank: Path, columns: Columns[Any], group: str, name: str, first: int
) -> None:
    """A record is filled by position."""
    sql = statements("sqlite", group)[name]
    values = some_values(sql)
    with contextlib.closing(sqlite3.connect(blank)) as connection:
        described = connection.execute(sql, values).description

    names = [column[0] for column in described][first:]
    renamed = {"key": "run_key", "inline": "inline_steps"}
    assert names == [renamed.get(field, field) for field in columns.names]


def test_a_run_comes_back_as_it_was() -> None:
    """Times, truth values and lists too."""
    run = RunRecord(
        key=b"k" * 16,
        namespace="n",
        run_id="r",
        workflow="w",
        queue="q",
        cancelling=True,
        wake_at=AT,
        inline=(InlineStep(path="0", function_name="f", scheduled_seq=1, scheduled_at=AT, told=True),),
        owner="w",
        reply_to=("a", "b"),
        created_at=AT,
        updated_at=AT,
    )

    row = RUN.row(run)

    assert all(value is None or isinstance(value, str | int | bytes) for value in row)
    assert RUN.record(row) == run


@pytest.mark.parametrize(
    ("columns", "record"),
    [
        (
            STEP,
            StepRecord(
                path="0",
                kind="http",
                function_name="f",
                queue="q",
                dispatch="inline",
                scheduled_seq=1,
                scheduled_at=AT,
                abandoned=True,
                heartbeat_s=0.5,
                beat=b"{}",
                step_id="0",
                key_part="0",
                failed=True,
            ),
        ),
        (TIMER, TimerRecord(path="0", fire_at=AT, due_at=AT)),
        (
            WORKER,
            WorkerRecord(
                worker_id="w",
                host="h",
                pid=1,
                began="b",
                queues=("a",),
                workflows=(("n", "v", "d"),),
                started_at=AT,
                alive_until=AT,
            ),
        ),
    ],
)
def test_other_records_come_back_as_they_were(columns: Columns[Any], record: msgspec.Struct) -> None:
    """As runs do."""
    again = columns.record(columns.row(record))

    assert again == record
    assert [type(value) for value in msgspec.structs.astuple(again)] == [
        type(value) for value in msgspec.structs.astuple(record)
    ]


@pytest.mark.parametrize(
    "at", [AT, dt.datetime(1960, 1, 1, tzinfo=dt.UTC), dt.datetime.max.replace(tzinfo=dt.UTC)]
)
def test_a_time_is_kept_to_the_microsecond(at: dt.datetime) -> None:
    """Also before the epoch, and at the end of the calendar."""
    assert moment(micros(at)) == at
