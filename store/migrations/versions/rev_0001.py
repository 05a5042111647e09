"""The first schema."""

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

revision = "0001"
down_revision = None

Name = Text().with_variant(Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Make all tables."""
    _runs()
    _prefer_runs_by_id()
    _events()
    _steps()
    _timers()
    _promises()
    _facts_seen()
    _step_ids()
    _outbox()
    _workers()


def _partial(condition: str) -> dict[str, Any]:
    return {"sqlite_where": text(condition), "postgresql_where": text(condition)}


def _runs() -> None:
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
        Column("owner_message", Text),
        Column("wake_at", BigInteger),
        Column("hints", Integer, nullable=False),
        Column("deliveries", BigInteger, nullable=False),
        Column("prev_seq", BigInteger),
        Column("started_id", Text),
        Column("has_unkeyed_steps", Boolean, nullable=False),
        Column("has_numeric_keys", Boolean, nullable=False),
        Column("strikes", Integer, nullable=False),
        Column("parked", Text),
        Column("parked_reason", Text),
        Column("reply_to", Text, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("updated_at", BigInteger, nullable=False),
        Column("ended_at", BigInteger),
        PrimaryKeyConstraint("run_key", name="tidewheel_runs_pk"),
        UniqueConstraint("namespace", "run_id", name="tidewheel_runs_by_id"),
        CheckConstraint("length(run_key) = 16", name="tidewheel_runs_key_is_16_bytes"),
        CheckConstraint("last_seq >= 0 AND segment_seq >= 0", name="tidewheel_runs_has_begun"),
        CheckConstraint("segment_seq <= last_seq", name="tidewheel_runs_segment_has_begun"),
        CheckConstraint("hints >= 0 AND strikes >= 0", name="tidewheel_runs_counts"),
        CheckConstraint("ended_at IS NULL OR wake_at IS NULL", name="tidewheel_runs_ended_is_not_woken"),
        CheckConstraint("parked IS NULL OR wake_at IS NULL", name="tidewheel_runs_parked_is_not_woken"),
        CheckConstraint("ended_at IS NULL OR parked IS NULL", name="tidewheel_runs_ended_is_not_parked"),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "tidewheel_runs_by_idempotency_key",
        "tidewheel_runs",
        ["namespace", "idempotency_key"],
        unique=True,
        **_partial("idempotency_key IS NOT NULL"),
    )
    op.create_index("tidewheel_runs_newest", "tidewheel_runs", ["namespace", "run_key"])
    op.create_index(
        "tidewheel_runs_to_wake", "tidewheel_runs", ["wake_at"], **_partial("wake_at IS NOT NULL")
    )
    op.create_index(
        "tidewheel_runs_ended",
        "tidewheel_runs",
        ["namespace", "ended_at"],
        **_partial("ended_at IS NOT NULL"),
    )
    op.create_index(
        "tidewheel_runs_parked", "tidewheel_runs", ["namespace", "run_key"], **_partial("parked IS NOT NULL")
    )


def _prefer_runs_by_id() -> None:
    """Make the index of runs' ids the newest.

    Of indexes that cost the same Postgres takes the one made last, and before it has statistics all that
    begin with the namespace do. Made before the others, this one was not used to find a run by its id: every
    run of the namespace was read instead, until the table was analyzed.
    """
    if op.get_bind().dialect.name == "postgresql":
        op.drop_constraint("tidewheel_runs_by_id", "tidewheel_runs")
        op.create_unique_constraint("tidewheel_runs_by_id", "tidewheel_runs", ["namespace", "run_id"])


def _events() -> None:
    op.create_table(
        "tidewheel_events",
        Column("run_key", LargeBinary, nullable=False),
        Column("run_seq", BigInteger, nullable=False),
        Column("at", BigInteger, nullable=False),
        Column("type", Text, nullable=False),
        Column("version", Integer, nullable=False),
        Column("codec", Text, nullable=False),
        Column("data", LargeBinary, nullable=False),
        Column("checksum", BigInteger, nullable=False),
        Column("public_key", LargeBinary),
        Column("prev_seq", BigInteger),
        Column("public", LargeBinary),
        PrimaryKeyConstraint("run_key", "run_seq", name="tidewheel_events_pk"),
        CheckConstraint("run_seq >= 0", name="tidewheel_events_seq"),
        CheckConstraint("prev_seq IS NULL OR prev_seq < run_seq", name="tidewheel_events_prev_seq"),
        CheckConstraint("(public_key IS NULL) = (public IS NULL)", name="tidewheel_events_public"),
        postgresql_partition_by="RANGE (run_key)",
        sqlite_with_rowid=False,
    )
    op.create_index(
        "tidewheel_events_by_public_key",
        "tidewheel_events",
        ["run_key", "public_key"],
        unique=True,
        **_partial("public_key IS NOT NULL"),
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute("CREATE TABLE tidewheel_events_rest PARTITION OF tidewheel_events DEFAULT")


def _steps() -> None:
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
        Column("started_id", Text),
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
    op.create_index("tidewheel_steps_due", "tidewheel_steps", ["due_at"], **_partial("due_at IS NOT NULL"))
    op.create_index("tidewheel_steps_by_owner", "tidewheel_steps", ["owner"], **_partial("owner IS NOT NULL"))


def _timers() -> None:
    op.create_table(
        "tidewheel_timers",
        Column("run_key", LargeBinary, nullable=False),
        Column("path", Name, nullable=False),
        Column("fire_at", BigInteger, nullable=False),
        Column("due_at", BigInteger, nullable=False),
        PrimaryKeyConstraint("run_key", "path", name="tidewheel_timers_pk"),
        CheckConstraint("due_at >= fire_at", name="tidewheel_timers_not_early"),
        sqlite_with_rowid=False,
    )
    op.create_index("tidewheel_timers_due", "tidewheel_timers", ["due_at"])


def _promises() -> None:
    op.create_table(
        "tidewheel_promises",
        Column("run_key", LargeBinary, nullable=False),
        Column("name", Name, nullable=False),
        Column("path", Name, nullable=False),
        Column("resolved", Boolean, nullable=False),
        PrimaryKeyConstraint("run_key", "name", name="tidewheel_promises_pk"),
        sqlite_with_rowid=False,
    )


def _facts_seen() -> None:
    op.create_table(
        "tidewheel_facts_seen",
        Column("run_key", LargeBinary, nullable=False),
        Column("fact", Name, nullable=False),
        PrimaryKeyConstraint("run_key", "fact", name="tidewheel_facts_seen_pk"),
        sqlite_with_rowid=False,
    )


def _step_ids() -> None:
    op.create_table(
        "tidewheel_step_ids",
        Column("run_key", LargeBinary, nullable=False),
        Column("step_id", Name, nullable=False),
        Column("attempt", BigInteger, nullable=False),
        PrimaryKeyConstraint("run_key", "step_id", name="tidewheel_step_ids_pk"),
        CheckConstraint("attempt >= 1", name="tidewheel_step_ids_attempt"),
        sqlite_with_rowid=False,
    )


def _outbox() -> None:
    op.create_table(
        "tidewheel_outbox",
        Column("run_key", LargeBinary, nullable=False),
        Column("first_seq", BigInteger, nullable=False),
        Column("last_seq", BigInteger, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("due_at", BigInteger, nullable=False),
        Column("attempts", Integer, nullable=False, server_default="0"),
        Column("claimed_by", Text),
        Column("claimed_until", BigInteger),
        Column("last_error", Text),
        PrimaryKeyConstraint("run_key", "first_seq", name="tidewheel_outbox_pk"),
        CheckConstraint("first_seq >= 0 AND first_seq <= last_seq", name="tidewheel_outbox_range"),
        CheckConstraint("attempts >= 0", name="tidewheel_outbox_attempts"),
        sqlite_with_rowid=False,
    )
    op.create_index("tidewheel_outbox_due", "tidewheel_outbox", ["due_at"])


def _workers() -> None:
    op.create_table(
        "tidewheel_workers",
        Column("worker_id", Name, nullable=False),
        Column("namespace", Name, nullable=False),
        Column("host", Text, nullable=False),
        Column("pid", BigInteger, nullable=False),
        Column("began", Text, nullable=False),
        Column("queues", Text, nullable=False),
        Column("workflows", Text, nullable=False),
        Column("started_at", BigInteger, nullable=False),
        Column("alive_until", BigInteger, nullable=False),
        PrimaryKeyConstraint("worker_id", name="tidewheel_workers_pk"),
        sqlite_with_rowid=False,
    )
