"""Reads a database after the chaos and says everything that is wrong in it.

Rule: it shares nothing with the engine. It knows the tables and the JSON of events as the pages for users
describe them, reads them with SQL, and imports nothing of the product: a mistake in the product's own rules
cannot hide here.

Rules over journals and rows are statements in ``rules/``, one row for each breach. What SQL cannot do is in
this module, checksums and what the workload has to come to, and in ``effects``: what bodies wrote down.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg

from tests.chaos import orders
from tests.chaos.effects import effect_findings, row_findings
from tests.chaos.findings import Finding, Report
from tests.chaos.ledger import Line

RULES = Path(__file__).parent / "rules"
#: What the rules read, in the order in which it is made, each with the columns that it is looked up by.
TABLES = {
    "facts": ("run_key, promise, run_seq", "run_key, run_seq"),
    "published": ("run_key, run_seq",),
    "contexts": ("run_key, first_seq",),
    "open_steps": ("run_key, path",),
}
_ROWS_AT_A_TIME = 5_000
#: Of a step in a context: path, id, name, part of keys, attempt, whether start and failure were told, signal.
_STEP_PARTS = 8


def check(connection: psycopg.Connection[Any], started: Collection[str], lines: Sequence[Line]) -> Report:
    """Look at everything in one transaction, which the caller ends.

    *started* are the root runs that were started, *lines* what bodies wrote.
    """
    report = Report()
    report.findings += _unreadable(connection, report)
    _prepare(connection, report.findings)
    for rule in rule_names():
        report.findings += _broken(connection, rule)
    report.findings += _unexpected(connection, started, report)
    report.findings += effect_findings(connection, lines, report)
    report.findings += row_findings(connection)
    return report


def breaches(url: str) -> list[Finding]:
    """Return which rules the journals and rows at *url* break, whatever the workload."""
    with psycopg.connect(url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        found = list(_unreadable(connection, Report()))
        _prepare(connection, found)
        for rule in rule_names():
            found += _broken(connection, rule)
        connection.rollback()
        return found


def published(url: str) -> dict[str, list[int]]:
    """Return which events of each run at *url* are public, in order."""
    with psycopg.connect(url) as connection:
        _prepare(connection, ())
        rows = connection.execute(
            "SELECT run_id, array_agg(run_seq ORDER BY run_seq) FROM published GROUP BY run_id"
        ).fetchall()
        found: dict[str, list[int]] = {str(run_id): list(seqs) for run_id, seqs in rows}
        connection.rollback()
        return found


def checked(url: str, started: Collection[str], lines: Sequence[Line]) -> Report:
    """Look at everything in the database at *url*, as of one moment."""
    with psycopg.connect(url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        report = check(connection, started, lines)
        connection.rollback()
        return report


def rule_names() -> list[str]:
    """Return the rules that are statements."""
    return sorted(path.stem for path in RULES.glob("*.sql") if not path.name.startswith("_"))


def _prepare(connection: psycopg.Connection[Any], unreadable: Sequence[Finding]) -> None:
    connection.execute(
        "CREATE TEMPORARY TABLE unreadable (run_key bytea, first_seq bigint, rule text) ON COMMIT DROP"
    )
    for finding in unreadable:
        row = (bytes.fromhex(finding.run_id), finding.run_seq, finding.rule)
        connection.execute("INSERT INTO unreadable VALUES (%s, %s, %s)", row)
    for table, indexes in TABLES.items():
        connection.execute(_statement(f"_{table}.sql"))
        for columns in indexes:
            connection.execute(f"CREATE INDEX ON {table} ({columns})".encode())
        connection.execute(f"ANALYZE {table}".encode())


def _statement(name: str) -> bytes:
    """Read a statement; a percent sign in it is no placeholder, since nothing is filled in."""
    return (RULES / name).read_bytes()


def _broken(connection: psycopg.Connection[Any], rule: str) -> Iterator[Finding]:
    for run_id, run_seq, what in connection.execute(_statement(f"{rule}.sql")):
        yield Finding(rule, run_id, run_seq, what)


def _unreadable(connection: psycopg.Connection[Any], report: Report) -> Iterator[Finding]:
    """Yield the rows of journals whose bytes are not what was written; their runs are named by their keys."""
    with connection.cursor("rows") as cursor:
        cursor.itersize = _ROWS_AT_A_TIME
        cursor.execute("SELECT run_key, first_seq, codec, data, checksum, public FROM tidewheel_journal")
        for run_key, first_seq, codec, data, checksum, public in cursor:
            events = _events(data) if codec == "json" else []
            report.events += len(events)
            if zlib.crc32(data) != checksum:
                yield Finding("checksum", run_key.hex(), first_seq, f"{zlib.crc32(data)}, not {checksum}")
            elif not events:
                yield Finding("event_is_json", run_key.hex(), first_seq, f"{codec}: {data[:80]!r}")
            if public is not None and not _is_context(public):
                yield Finding("context_is_json", run_key.hex(), first_seq, f"{public[:80]!r}")


def _events(data: bytes) -> list[dict[str, Any]]:
    """Return the events of a row: objects that say their types. None, if it is anything else."""
    events = _read(data)
    if not isinstance(events, list):
        return []
    are_typed = all(isinstance(event, dict) and isinstance(event.get("type"), str) for event in events)
    return events if are_typed else []


def _is_context(public: bytes) -> bool:
    """Tell whether *public* has the parts of a context, each of its kind."""
    match _read(public):
        case [int() | None, str(), str() | None, [*steps], [*_]]:
            return all(isinstance(step, list) and len(step) == _STEP_PARTS for step in steps)
        case _:
            return False


def _read(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return None


def _unexpected(
    connection: psycopg.Connection[Any], started: Collection[str], report: Report
) -> Iterator[Finding]:
    """Yield runs that are lost, runs that nobody started, and runs that came to something else."""
    wanted = {*started, *filter(None, map(orders.child_of, started))}
    found = {run_id for (run_id,) in connection.execute("SELECT run_id FROM tidewheel_runs")}
    report.runs = len(found)
    for run_id in sorted(wanted - found):
        yield Finding("no_run_is_lost", run_id, None, "it was started, and is not there")
    for run_id in sorted(found - wanted):
        yield Finding("no_run_is_invented", run_id, None, "nobody started it")
    ends = connection.execute("SELECT run_id, run_seq, type, result FROM facts WHERE is_end")
    for run_id, run_seq, type_, result in ends:
        right = {"ok": orders.result_of(run_id)} if run_id in wanted else None
        if type_ != "ExecutionCompleted" or result != right:
            yield Finding("runs_come_to_their_result", run_id, run_seq, f"{type_} {result}, not {right}")
    delivered = connection.execute(
        "SELECT run_id, count(*) FROM facts WHERE type = 'SignalDelivered' GROUP BY run_id"
    )
    for run_id, count in delivered:
        if count > 1:
            yield Finding("a_signal_arrives_once", run_id, None, f"sent once, delivered {count} times")
