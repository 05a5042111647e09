"""Tables for projectors: snapshots of runs, how far projections have read, and which projectors are alive."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Boolean, Column, LargeBinary, PrimaryKeyConstraint, Text
from sqlalchemy.dialects.postgresql import JSONB

revision = "0004"
down_revision = "0003"

Name = Text().with_variant(Text(collation="C"), "postgresql")
Json = Text().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    """Make the tables, which are empty: projectors fill them from the journals."""
    _make_snapshots()
    op.create_table(
        "tidewheel_snapshot_steps",
        Column("run_key", LargeBinary, nullable=False),
        Column("step_id", Name, nullable=False),
        Column("place", BigInteger, nullable=False),
        Column("step", Json, nullable=False),
        PrimaryKeyConstraint("run_key", "step_id", name="tidewheel_snapshot_steps_pk"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "tidewheel_projections",
        Column("run_key", LargeBinary, nullable=False),
        Column("projection", Name, nullable=False),
        Column("last_event_seq", BigInteger, nullable=False),
        PrimaryKeyConstraint("run_key", "projection", name="tidewheel_projections_pk"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "tidewheel_projectors",
        Column("namespace", Name, nullable=False),
        Column("member", Name, nullable=False),
        Column("alive_until", BigInteger, nullable=False),
        PrimaryKeyConstraint("namespace", "member", name="tidewheel_projectors_pk"),
        sqlite_with_rowid=False,
    )


def _make_snapshots() -> None:
    op.create_table(
        "tidewheel_snapshots",
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
        Column("updated_at", BigInteger, nullable=False),
        PrimaryKeyConstraint("run_key", name="tidewheel_snapshots_pk"),
        postgresql_with={"fillfactor": 50},
        sqlite_with_rowid=False,
    )
    op.create_index("tidewheel_snapshots_by_id", "tidewheel_snapshots", ["namespace", "run_id"])
    op.create_index(
        "tidewheel_snapshots_by_status", "tidewheel_snapshots", ["namespace", "status", "run_key"]
    )
