"""A row of the outbox keeps its first error, and may be a dead letter."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, Text, text

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add two columns, and an index of the dead letters alone; what writes rows need not know of them."""
    op.add_column("tidewheel_outbox", Column("first_error", Text))
    op.add_column("tidewheel_outbox", Column("dead_at", BigInteger))
    dead = text("dead_at IS NOT NULL")
    op.create_index(
        "tidewheel_outbox_dead",
        "tidewheel_outbox",
        ["run_key", "first_seq"],
        sqlite_where=dead,
        postgresql_where=dead,
    )
