"""Queues may have limits, and a run of such a queue a place in it."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, CheckConstraint, Column, Float, PrimaryKeyConstraint, Text, text

revision = "0005"
down_revision = "0004"

Name = Text().with_variant(Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add a table, two columns that are empty, and an index over the rows where they are not."""
    op.create_table(
        "tidewheel_admission",
        Column("namespace", Name, nullable=False),
        Column("queue", Name, nullable=False),
        Column("max_running", BigInteger, nullable=False),
        Column("max_pending", BigInteger, nullable=False),
        Column("overload", Text, nullable=False),
        Column("pause_s", Float, nullable=False),
        Column("updated_at", BigInteger, nullable=False),
        PrimaryKeyConstraint("namespace", "queue", name="tidewheel_admission_pk"),
        CheckConstraint("max_running >= 0 AND max_pending >= 0", name="tidewheel_admission_counts"),
        CheckConstraint("pause_s > 0", name="tidewheel_admission_pause"),
        CheckConstraint(
            "overload IN ('reject', 'queue', 'delay')", name="tidewheel_admission_overload_is_known"
        ),
        sqlite_with_rowid=False,
    )
    op.add_column("tidewheel_runs", Column("place", Text))
    op.add_column("tidewheel_runs", Column("admit_at", BigInteger))
    in_place = text("place IS NOT NULL")
    op.create_index(
        "tidewheel_runs_in_place",
        "tidewheel_runs",
        ["place", "namespace", "queue", "run_key"],
        sqlite_where=in_place,
        postgresql_where=in_place,
    )
