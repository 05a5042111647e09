"""The schema, as SQLAlchemy Core metadata: what migrations must arrive at, on SQLite and on Postgres.

Times are integers, microseconds since the epoch (``Moment``), on both databases: SQLite has no type
for them, comparing integers is exact and needs no time zone of a session, and rows can be moved
from one database to the other as they are. Lists are JSON text.

Every table begins with ``tidewheel_``, since a transactional step has the users' own tables in the same
database. Every key leads with the run, so that what belongs to a run sits together. There are no
foreign keys: rows are written by the ledger under the run's lock, and deleted with the run.

On Postgres the journal is partitioned by ranges of run keys, that is by age; its partitions are made by
functions in the database, and are not in here.

The hot path does not use this module; it executes the statements in ``sqlite/sql`` and ``postgres/sql``.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

#: The table in which Alembic keeps the revision; its usual name may be the users' own.
VERSION_TABLE = "tidewheel_version"

metadata = MetaData()

Moment = BigInteger
#: Compared byte by byte, on both databases: a run's children are a range of names.
Name = Text().with_variant(Text(collation="C"), "postgresql")
#: JSON that people query: text on SQLite, whose functions read it.
Json = Text().with_variant(JSONB(), "postgresql")


def _partial(condition: str) -> dict[str, Any]:
    """Return the keywords of an index over the rows for which *condition* holds."""
    return {"sqlite_where": text(condition), "postgresql_where": text(condition)}


def _hot_check(rule: str, *, name: str) -> CheckConstraint:
    """Return a rule of a table that every append writes. It is kept on SQLite, and by the tests of Postgres.

    Postgres reads and prepares each such rule anew for every statement, which was a sixth of its part of an
    append; what is written there has come from the same ledger.
    """
    return CheckConstraint(rule, name=name).ddl_if(dialect="sqlite")


#: ``revision`` counts the appends on Postgres, where a process may know the run as it left it.
runs = Table(
    "tidewheel_runs",
    metadata,
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
    Column("wake_at", Moment),
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
    Column("created_at", Moment, nullable=False),
    Column("updated_at", Moment, nullable=False),
    Column("ended_at", Moment),
    Column("revision", BigInteger, nullable=False, server_default="0"),
    Column("place", Text),
    Column("admit_at", Moment),
    PrimaryKeyConstraint("run_key", name="tidewheel_runs_pk"),
    UniqueConstraint("namespace", "run_id", name="tidewheel_runs_by_id"),
    _hot_check("length(run_key) = 16", name="tidewheel_runs_key_is_16_bytes"),
    _hot_check("last_seq >= 0 AND segment_seq >= 0", name="tidewheel_runs_has_begun"),
    _hot_check("segment_seq <= last_seq", name="tidewheel_runs_segment_has_begun"),
    _hot_check("hints >= 0 AND strikes >= 0", name="tidewheel_runs_counts"),
    _hot_check("ended_at IS NULL OR wake_at IS NULL", name="tidewheel_runs_ended_is_not_woken"),
    _hot_check("parked IS NULL OR wake_at IS NULL", name="tidewheel_runs_parked_is_not_woken"),
    _hot_check("ended_at IS NULL OR parked IS NULL", name="tidewheel_runs_ended_is_not_parked"),
    _hot_check("(owner IS NULL) = (inline_steps = '[]')", name="tidewheel_runs_inline_steps_have_owner"),
    _hot_check("ended_at IS NULL OR owner IS NULL", name="tidewheel_runs_ended_is_not_owned"),
    # A row is written anew by each append: where there is room beside it, no index has to be told.
    postgresql_with={"fillfactor": 50},
    sqlite_with_rowid=False,
)
Index(
    "tidewheel_runs_by_idempotency_key",
    runs.c.namespace,
    runs.c.idempotency_key,
    unique=True,
    **_partial("idempotency_key IS NOT NULL"),
)
Index("tidewheel_runs_newest", runs.c.namespace, runs.c.run_key)
Index("tidewheel_runs_to_wake", runs.c.wake_at, **_partial("wake_at IS NOT NULL"))
Index("tidewheel_runs_by_owner", runs.c.owner, **_partial("owner IS NOT NULL"))
Index("tidewheel_runs_ended", runs.c.namespace, runs.c.ended_at, **_partial("ended_at IS NOT NULL"))
Index("tidewheel_runs_parked", runs.c.namespace, runs.c.run_key, **_partial("parked IS NOT NULL"))
# Only runs of queues that have a limit are in it, until they end.
Index(
    "tidewheel_runs_in_place",
    runs.c.place,
    runs.c.namespace,
    runs.c.queue,
    runs.c.run_key,
    **_partial("place IS NOT NULL"),
)

#: The journal: a row has the events of one append. ``checksum`` is the CRC-32 of ``data``; ``public`` is
#: there if the events publish anything.
journal = Table(
    "tidewheel_journal",
    metadata,
    Column("run_key", LargeBinary, nullable=False),
    Column("first_seq", BigInteger, nullable=False),
    Column("last_seq", BigInteger, nullable=False),
    Column("at", Moment, nullable=False),
    Column("codec", Text, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Column("checksum", BigInteger, nullable=False),
    Column("public", LargeBinary),
    PrimaryKeyConstraint("run_key", "first_seq", name="tidewheel_journal_pk"),
    _hot_check("first_seq >= 0 AND first_seq <= last_seq", name="tidewheel_journal_range"),
    postgresql_partition_by="RANGE (run_key)",
    sqlite_with_rowid=False,
)

#: Steps without a result that are not in their run's row.
steps = Table(
    "tidewheel_steps",
    metadata,
    Column("run_key", LargeBinary, nullable=False),
    Column("path", Name, nullable=False),
    Column("kind", Text, nullable=False),
    Column("function_name", Text, nullable=False),
    Column("queue", Text, nullable=False),
    Column("dispatch", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("scheduled_seq", BigInteger, nullable=False),
    Column("scheduled_at", Moment, nullable=False),
    Column("owner", Name),
    Column("abandoned", Boolean, nullable=False),
    Column("due_at", Moment),
    Column("hints", Integer, nullable=False),
    Column("start_by", Moment),
    Column("close_by", Moment),
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
Index("tidewheel_steps_due", steps.c.due_at, **_partial("due_at IS NOT NULL"))
Index("tidewheel_steps_by_owner", steps.c.owner, **_partial("owner IS NOT NULL"))

#: Timers that neither fired nor were cancelled.
timers = Table(
    "tidewheel_timers",
    metadata,
    Column("run_key", LargeBinary, nullable=False),
    Column("path", Name, nullable=False),
    Column("fire_at", Moment, nullable=False),
    Column("due_at", Moment, nullable=False),
    PrimaryKeyConstraint("run_key", "path", name="tidewheel_timers_pk"),
    CheckConstraint("due_at >= fire_at", name="tidewheel_timers_not_early"),
    sqlite_with_rowid=False,
)
Index("tidewheel_timers_due", timers.c.due_at)

#: Promises of the current segment, by the names that outsiders know.
promises = Table(
    "tidewheel_promises",
    metadata,
    Column("run_key", LargeBinary, nullable=False),
    Column("name", Name, nullable=False),
    Column("path", Name, nullable=False),
    Column("resolved", Boolean, nullable=False),
    PrimaryKeyConstraint("run_key", "name", name="tidewheel_promises_pk"),
    sqlite_with_rowid=False,
)

#: The dedupe keys of facts that were written.
facts_seen = Table(
    "tidewheel_facts_seen",
    metadata,
    Column("run_key", LargeBinary, nullable=False),
    Column("fact", Name, nullable=False),
    PrimaryKeyConstraint("run_key", "fact", name="tidewheel_facts_seen_pk"),
    sqlite_with_rowid=False,
)

#: The step ids that keyed steps used, with their highest logical attempt.
step_ids = Table(
    "tidewheel_step_ids",
    metadata,
    Column("run_key", LargeBinary, nullable=False),
    Column("step_id", Name, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    PrimaryKeyConstraint("run_key", "step_id", name="tidewheel_step_ids_pk"),
    CheckConstraint("attempt >= 1", name="tidewheel_step_ids_attempt"),
    sqlite_with_rowid=False,
)

#: What the event bus is owed: a range of a run's events per commit, and how telling it went so far. What is
#: dead waits for a person.
outbox = Table(
    "tidewheel_outbox",
    metadata,
    Column("run_key", LargeBinary, nullable=False),
    Column("first_seq", BigInteger, nullable=False),
    Column("last_seq", BigInteger, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("due_at", Moment, nullable=False),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("claimed_by", Text),
    Column("claimed_until", Moment),
    Column("last_error", Text),
    Column("first_error", Text),
    Column("dead_at", Moment),
    PrimaryKeyConstraint("run_key", "first_seq", name="tidewheel_outbox_pk"),
    _hot_check("first_seq >= 0 AND first_seq <= last_seq", name="tidewheel_outbox_range"),
    _hot_check("attempts >= 0", name="tidewheel_outbox_attempts"),
    sqlite_with_rowid=False,
)

Index("tidewheel_outbox_dead", outbox.c.run_key, outbox.c.first_seq, **_partial("dead_at IS NOT NULL"))
#: How runs stand, as a projector reduced it from their public events: for people to query. ``revision``
#: counts the snapshots that took the place of one they were not made of; ``step_count`` is how many steps
#: there are in all, of which the row has the first.
snapshots = Table(
    "tidewheel_snapshots",
    metadata,
    Column("run_key", LargeBinary, nullable=False),
    Column("namespace", Name, nullable=False),
    Column("run_id", Name, nullable=False),
    Column("workflow", Name, nullable=False),
    Column("status", Text, nullable=False),
    Column("last_event_seq", BigInteger, nullable=False),
    Column("stale", Boolean, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("step_count", BigInteger, nullable=False),
    Column("snapshot", Json, nullable=False),
    Column("updated_at", Moment, nullable=False),
    PrimaryKeyConstraint("run_key", name="tidewheel_snapshots_pk"),
    # A row is written anew for every few events of its run: where there is room beside it, no index has to be
    # told unless the status changes.
    postgresql_with={"fillfactor": 50},
    sqlite_with_rowid=False,
)
Index("tidewheel_snapshots_by_id", snapshots.c.namespace, snapshots.c.run_id)
Index("tidewheel_snapshots_by_status", snapshots.c.namespace, snapshots.c.status, snapshots.c.run_key)

#: The steps of long runs that are not in their snapshot's row, by their place.
snapshot_steps = Table(
    "tidewheel_snapshot_steps",
    metadata,
    Column("run_key", LargeBinary, nullable=False),
    Column("step_id", Name, nullable=False),
    Column("place", BigInteger, nullable=False),
    Column("step", Json, nullable=False),
    PrimaryKeyConstraint("run_key", "step_id", name="tidewheel_snapshot_steps_pk"),
    sqlite_with_rowid=False,
)

#: How far users' own projections have read each run; written with their rows, in one transaction.
projections = Table(
    "tidewheel_projections",
    metadata,
    Column("run_key", LargeBinary, nullable=False),
    Column("projection", Name, nullable=False),
    Column("last_event_seq", BigInteger, nullable=False),
    PrimaryKeyConstraint("run_key", "projection", name="tidewheel_projections_pk"),
    sqlite_with_rowid=False,
)

#: The projectors that are alive, who divide the shards of their namespace among themselves.
projectors = Table(
    "tidewheel_projectors",
    metadata,
    Column("namespace", Name, nullable=False),
    Column("member", Name, nullable=False),
    Column("alive_until", Moment, nullable=False),
    PrimaryKeyConstraint("namespace", "member", name="tidewheel_projectors_pk"),
    sqlite_with_rowid=False,
)

workers = Table(
    "tidewheel_workers",
    metadata,
    Column("worker_id", Name, nullable=False),
    Column("namespace", Name, nullable=False),
    Column("host", Text, nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("began", Text, nullable=False),
    Column("queues", Text, nullable=False),
    Column("workflows", Text, nullable=False),
    Column("started_at", Moment, nullable=False),
    Column("alive_until", Moment, nullable=False),
    PrimaryKeyConstraint("worker_id", name="tidewheel_workers_pk"),
    sqlite_with_rowid=False,
)

#: The limits of queues, as operators set them: whoever counts the runs of a queue holds the lock of its row.
admission = Table(
    "tidewheel_admission",
    metadata,
    Column("namespace", Name, nullable=False),
    Column("queue", Name, nullable=False),
    Column("max_running", BigInteger, nullable=False),
    Column("max_pending", BigInteger, nullable=False),
    Column("overload", Text, nullable=False),
    Column("pause_s", Float, nullable=False),
    Column("updated_at", Moment, nullable=False),
    PrimaryKeyConstraint("namespace", "queue", name="tidewheel_admission_pk"),
    CheckConstraint("max_running >= 0 AND max_pending >= 0", name="tidewheel_admission_counts"),
    CheckConstraint("pause_s > 0", name="tidewheel_admission_pause"),
    CheckConstraint("overload IN ('reject', 'queue', 'delay')", name="tidewheel_admission_overload_is_known"),
    sqlite_with_rowid=False,
)
