"""Fills a database with runs that ended long ago: copies of one that is there.

Their keys are of the time before that one, a millisecond apart, as the keys of so many runs would be. What
they owed the event bus was told: such rows are gone.
"""

from __future__ import annotations

import concurrent.futures

import psycopg
from psycopg import sql

#: Rows are copied in parts, each a transaction, by so many connections at a time.
PART = 25_000
SIDE_BY_SIDE = 2


def longest_ended(database: str) -> tuple[bytes, int]:
    """Return the key of the run that has ended with the most rows in the journal, and how many those are."""
    with psycopg.connect(database) as connection:
        row = connection.execute(
            "SELECT run_key, count(*) FROM tidewheel_journal JOIN tidewheel_runs USING (run_key)"
            " WHERE ended_at IS NOT NULL GROUP BY run_key ORDER BY 2 DESC LIMIT 1"
        ).fetchone()
    assert row is not None, "no run has ended"
    return bytes(row[0]), int(row[1])


def copy_run(database: str, pattern: bytes, count: int) -> None:
    """Copy the run with the key *pattern*, with its journal, so many times."""
    firsts = range(0, count, PART)

    def copy(first: int) -> None:
        last = min(first + PART, count) - 1
        with psycopg.connect(database) as connection:
            # What is durable here does not matter, and is not what is measured.
            connection.execute("SET synchronous_commit = off")
            for table in ("tidewheel_runs", "tidewheel_journal"):
                values = {"pattern": pattern, "first": first, "last": last}
                connection.execute(_copying(connection, table), values)

    with concurrent.futures.ThreadPoolExecutor(SIDE_BY_SIDE) as threads:
        for done in concurrent.futures.as_completed([threads.submit(copy, first) for first in firsts]):
            done.result()


def tidy(database: str) -> None:
    """Do what autovacuum would have done by now."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("VACUUM (ANALYZE)")


def _copying(connection: psycopg.Connection[tuple[object, ...]], table: str) -> sql.Composed:
    names = connection.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped"
        " ORDER BY attnum",
        (table,),
    ).fetchall()
    changed = {
        # As the keys of other runs: the time comes first. One a millisecond.
        "run_key": sql.SQL(
            "substr(pattern.run_key, 1, 1) || substr(int8send(earlier - 1 - number), 4)"
            " || substr(pattern.run_key, 7)"
        ),
        "run_id": sql.SQL("'finished-' || number"),
    }
    columns = [str(name) for (name,) in names]
    values = [changed.get(name, sql.SQL("pattern.") + sql.Identifier(name)) for name in columns]
    return sql.SQL(
        "INSERT INTO {table} ({columns}) SELECT {values} FROM {table} AS pattern,"
        " generate_series(%(first)s::bigint, %(last)s::bigint) AS number,"
        " (SELECT ('x' || encode(substr(%(pattern)s::bytea, 2, 5), 'hex'))::bit(40)::bigint AS earlier) AS at"
        " WHERE pattern.run_key = %(pattern)s"
    ).format(
        table=sql.Identifier(table),
        columns=sql.SQL(", ").join(map(sql.Identifier, columns)),
        values=sql.SQL(", ").join(values),
    )
