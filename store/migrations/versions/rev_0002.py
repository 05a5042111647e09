"""A row of the journal has all events of one append, and plain inline steps are in their run's row.

On Postgres the fleet has to stand still meanwhile: workers of the release before write the tables as they
were.
"""

from __future__ import annotations

from typing import Any

from alembic import op
from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Text,
    UniqueConstraint,
    text,
)

from tidewheel.store.errors import SchemaMismatch
from tidewheel.store.migrations.converting import convert_events

revision = "0002"
down_revision = "0001"

Name = Text().with_variant(Text(collation="C"), "postgresql")

_INLINE_STEPS_HAVE_OWNER = "(owner IS NULL) = (inline_steps = '[]')"
_ENDED_IS_NOT_OWNED = "ended_at IS NULL OR owner IS NULL"


def upgrade() -> None:
    """Make the new journal and fill it, then let go of the old one."""
    is_postgres = op.get_bind().dialect.name == "postgresql"
    if is_postgres:
        _refuse_while_workers_live()
        _alter_on_postgres()
    else:
        _rebuild_runs()
        _rebuild_steps()
    op.create_index("tidewheel_runs_by_owner", "tidewheel_runs", ["owner"], **_partial("owner IS NOT NULL"))
    op.drop_index("tidewheel_outbox_due", "tidewheel_outbox")
    _make_journal(is_postgres=is_postgres)
    if is_postgres:
        op.execute(_PARTITIONS)
    convert_events(op.get_bind())
    op.drop_table("tidewheel_events")
    if is_postgres:
        op.execute(_OLD_FUNCTIONS)


def _partial(condition: str) -> dict[str, Any]:
    return {"sqlite_where": text(condition), "postgresql_where": text(condition)}


def _refuse_while_workers_live() -> None:
    now_us = "extract(epoch FROM clock_timestamp()) * 1000000"
    alive = text(f"SELECT worker_id FROM tidewheel_workers WHERE alive_until > {now_us}")  # noqa: S608 - our own words
    found = [row[0] for row in op.get_bind().execute(alive)]
    if found:
        raise SchemaMismatch(
            f"workers of an older release are running ({', '.join(found)}), and cannot write to the new "
            "schema: stop all workers and keepers, migrate, and start those of this release"
        )


def _make_journal(*, is_postgres: bool) -> None:
    check = CheckConstraint("first_seq >= 0 AND first_seq <= last_seq", name="tidewheel_journal_range")
    op.create_table(
        "tidewheel_journal",
        Column("run_key", LargeBinary, nullable=False),
        Column("first_seq", BigInteger, nullable=False),
        Column("last_seq", BigInteger, nullable=False),
        Column("at", BigInteger, nullable=False),
        Column("codec", Text, nullable=False),
        Column("data", LargeBinary, nullable=False),
        Column("checksum", BigInteger, nullable=False),
        Column("public", LargeBinary),
        PrimaryKeyConstraint("run_key", "first_seq", name="tidewheel_journal_pk"),
        *(() if is_postgres else (check,)),
        postgresql_partition_by="RANGE (run_key)",
        sqlite_with_rowid=False,
    )


# Postgres

#: The partitions of the old journal, for the new one.
_PARTITIONS = r"""
DO $$
DECLARE
    part record;
BEGIN
    CREATE TABLE tidewheel_journal_rest PARTITION OF tidewheel_journal DEFAULT;
    FOR part IN SELECT replace(of.relname, 'tidewheel_events', 'tidewheel_journal') AS name,
                       pg_get_expr(of.relpartbound, of.oid) AS bound
                  FROM pg_inherits AS link
                  JOIN pg_class AS of ON of.oid = link.inhrelid
                 WHERE link.inhparent = 'tidewheel_events'::regclass LOOP
        IF part.bound <> 'DEFAULT' THEN
            EXECUTE format('CREATE TABLE %I PARTITION OF tidewheel_journal %s', part.name, part.bound);
        END IF;
    END LOOP;
END
$$
"""

#: What the release before calls: its processes find out that they are too old.
_OLD_FUNCTIONS = """
DROP FUNCTION IF EXISTS tidewheel_lock_v1, tidewheel_look_v1, tidewheel_write_v1, tidewheel_write_known_v1,
                        tidewheel_delete_rows_v1, tidewheel_delete_v1, tidewheel_retire_runs_v1,
                        tidewheel_retire_partitions_v1, tidewheel_make_partitions_v1, tidewheel_partitions_v1
"""


#: Rules that Postgres would look at with every append.
_HOT_CHECKS = {
    "runs": (
        "key_is_16_bytes",
        "has_begun",
        "segment_has_begun",
        "counts",
        "ended_is_not_woken",
        "parked_is_not_woken",
        "ended_is_not_parked",
    ),
    "outbox": ("range", "attempts"),
}


def _alter_on_postgres() -> None:
    op.execute(
        """
        ALTER TABLE tidewheel_runs
              ADD COLUMN inline_steps text NOT NULL DEFAULT '[]',
              ADD COLUMN owner text COLLATE "C",
              ADD COLUMN has_promises boolean NOT NULL DEFAULT false,
              ADD COLUMN revision bigint NOT NULL DEFAULT 0
        """
    )
    for table, rules in _HOT_CHECKS.items():
        for rule in rules:
            op.execute(f"ALTER TABLE tidewheel_{table} DROP CONSTRAINT tidewheel_{table}_{rule}")
    op.execute(
        "UPDATE tidewheel_runs SET has_promises = true"
        " WHERE run_key IN (SELECT run_key FROM tidewheel_promises)"
    )
    op.execute(
        "ALTER TABLE tidewheel_runs"
        " ALTER COLUMN inline_steps DROP DEFAULT, ALTER COLUMN has_promises DROP DEFAULT"
    )
    op.execute("ALTER TABLE tidewheel_runs SET (fillfactor = 50)")
    op.execute("ALTER TABLE tidewheel_steps ADD COLUMN told boolean NOT NULL DEFAULT false")
    op.execute("UPDATE tidewheel_steps SET told = true WHERE started_id IS NOT NULL")
    op.execute("ALTER TABLE tidewheel_steps ALTER COLUMN told DROP DEFAULT, DROP COLUMN started_id")


# SQLite, which cannot alter a constraint


_RUN_COLUMNS = (
    "run_key, namespace, run_id, workflow, version, digest, queue, parent_key, idempotency_key, phase, "
    "cancelling, paused, last_seq, segment_seq, first_position, token, owner_message, wake_at, hints, "
    "deliveries, prev_seq, started_id, has_unkeyed_steps, has_numeric_keys, strikes, parked, parked_reason, "
    "reply_to, created_at, updated_at, ended_at"
)
_STEP_COLUMNS = (
    "run_key, path, kind, function_name, queue, dispatch, state, attempt, scheduled_seq, scheduled_at, "
    "owner, abandoned, due_at, hints, start_by, close_by, heartbeat_s, beat, step_id, key_part, "
    "logical_attempt, failed, signal_id"
)


def _rebuild_runs() -> None:
    indexes = ("by_idempotency_key", "newest", "to_wake", "ended", "parked")
    for index in indexes:
        op.drop_index(f"tidewheel_runs_{index}")
    op.rename_table("tidewheel_runs", "tidewheel_old_runs")
    op.create_table(
        "tidewheel_runs",
        Column("run_key", LargeBinary, nullable=False),
        Column("namespace", Name, nullable=False),
        Column("run_id", Name, nullable=False),
        Column("workflow", Name, nullable=False),
        Column("version", Text, nullable=False),
        Column("digest", Text, nullable=False),
        Column("queue", Text, nullable=False),
        Column("parent_key", LargeBinary),
        Column("idempotency_key", Name),
        Column("phase", Text, nullable=False),
        Column("cancelling", Boolean, nullable=False),
        Column("paused", Boolean, nullable=False),
        Column("last_seq", BigInteger, nullable=False),
        Column("segment_seq", BigInteger, nullable=False),
        Column("first_position", BigInteger, nullable=False),
        Column("token", LargeBinary, nullable=False),
        Column("inline_steps", Text, nullable=False),
        Column("owner", Name),
        Column("owner_message", Text),
        Column("wake_at", BigInteger),
        Column("hints", Integer, nullable=False),
        Column("deliveries", BigInteger, nullable=False),
        Column("prev_seq", BigInteger),
        Column("started_id", Text),
        Column("has_unkeyed_steps", Boolean, nullable=False),
        Column("has_numeric_keys", Boolean, nullable=False),
        Column("has_promises", Boolean, nullable=False),
        Column("strikes", Integer, nullable=False),
        Column("parked", Text),
        Column("parked_reason", Text),
        Column("reply_to", Text, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("updated_at", BigInteger, nullable=False),
        Column("ended_at", BigInteger),
        Column("revision", BigInteger, nullable=False, server_default="0"),
        PrimaryKeyConstraint("run_key", name="tidewheel_runs_pk"),
        UniqueConstraint("namespace", "run_id", name="tidewheel_runs_by_id"),
        *_checks_of_runs(),
        sqlite_with_rowid=False,
    )
    op.execute(
        f"INSERT INTO tidewheel_runs ({_RUN_COLUMNS}, inline_steps, has_promises) "  # noqa: S608 - our own words
        f"SELECT {_RUN_COLUMNS}, '[]', run_key IN (SELECT run_key FROM tidewheel_promises) "
        "FROM tidewheel_old_runs"
    )
    op.drop_table("tidewheel_old_runs")
    _index_runs()


def _checks_of_runs() -> list[CheckConstraint]:
    checks = {
        "key_is_16_bytes": "length(run_key) = 16",
        "has_begun": "last_seq >= 0 AND segment_seq >= 0",
        "segment_has_begun": "segment_seq <= last_seq",
        "counts": "hints >= 0 AND strikes >= 0",
        "ended_is_not_woken": "ended_at IS NULL OR wake_at IS NULL",
        "parked_is_not_woken": "parked IS NULL OR wake_at IS NULL",
        "ended_is_not_parked": "ended_at IS NULL OR parked IS NULL",
        "inline_steps_have_owner": _INLINE_STEPS_HAVE_OWNER,
        "ended_is_not_owned": _ENDED_IS_NOT_OWNED,
    }
    return [CheckConstraint(rule, name=f"tidewheel_runs_{name}") for name, rule in checks.items()]


def _index_runs() -> None:
    op.create_index(
        "tidewheel_runs_by_idempotency_key",
        "tidewheel_runs",
        ["namespace", "idempotency_key"],
        unique=True,
        **_partial("idempotency_key IS NOT NULL"),
    )
    op.create_index("tidewheel_runs_newest", "tidewheel_runs", ["namespace", "run_key"])
    for name, columns, condition in (
        ("to_wake", ["wake_at"], "wake_at IS NOT NULL"),
        ("ended", ["namespace", "ended_at"], "ended_at IS NOT NULL"),
        ("parked", ["namespace", "run_key"], "parked IS NOT NULL"),
    ):
        op.create_index(f"tidewheel_runs_{name}", "tidewheel_runs", columns, **_partial(condition))


def _rebuild_steps() -> None:
    for index in ("due", "by_owner"):
        op.drop_index(f"tidewheel_steps_{index}")
    op.rename_table("tidewheel_steps", "tidewheel_old_steps")
    op.create_table(
        "tidewheel_steps",
        Column("run_key", LargeBinary, nullable=False),
        Column("path", Name, nullable=False),
        Column("kind", Text, nullable=False),
        Column("function_name", Text, nullable=False),
        Column("queue", Text, nullable=False),
        Column("dispatch", Text, nullable=False),
        Column("state", Text, nullable=False),
        Column("attempt", BigInteger, nullable=False),
        Column("scheduled_seq", BigInteger, nullable=False),
        Column("scheduled_at", BigInteger, nullable=False),
        Column("owner", Name),
        Column("abandoned", Boolean, nullable=False),
        Column("due_at", BigInteger),
        Column("hints", Integer, nullable=False),
        Column("start_by", BigInteger),
        Column("close_by", BigInteger),
        Column("heartbeat_s", Float),
        Column("beat", LargeBinary),
        Column("step_id", Name, nullable=False),
        Column("key_part", Text, nullable=False),
        Column("logical_attempt", BigInteger, nullable=False),
        Column("told", Boolean, nullable=False),
        Column("failed", Boolean, nullable=False),
        Column("signal_id", Text),
        PrimaryKeyConstraint("run_key", "path", name="tidewheel_steps_pk"),
        CheckConstraint("attempt >= 0 AND hints >= 0", name="tidewheel_steps_counts"),
        CheckConstraint(
            "state IN ('scheduled', 'started', 'retrying', 'parked')", name="tidewheel_steps_state_is_known"
        ),
        CheckConstraint("state <> 'started' OR attempt > 0", name="tidewheel_steps_started_has_attempt"),
        CheckConstraint("state <> 'parked' OR due_at IS NULL", name="tidewheel_steps_parked_is_not_due"),
        CheckConstraint("NOT abandoned OR due_at IS NULL", name="tidewheel_steps_abandoned_is_not_due"),
        sqlite_with_rowid=False,
    )
    op.execute(
        f"INSERT INTO tidewheel_steps ({_STEP_COLUMNS}, told) "  # noqa: S608 - our own words
        f"SELECT {_STEP_COLUMNS}, started_id IS NOT NULL FROM tidewheel_old_steps"
    )
    op.drop_table("tidewheel_old_steps")
    op.create_index("tidewheel_steps_due", "tidewheel_steps", ["due_at"], **_partial("due_at IS NOT NULL"))
    op.create_index("tidewheel_steps_by_owner", "tidewheel_steps", ["owner"], **_partial("owner IS NOT NULL"))
