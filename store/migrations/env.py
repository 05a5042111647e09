"""What Alembic executes to migrate: it uses the connection, and the transaction, of its caller."""

from __future__ import annotations

from alembic import context
from alembic.runtime.migration import MigrationContext, MigrationInfo

from tidewheel.store.schema import VERSION_TABLE, metadata

attributes = context.config.attributes


def _note(ctx: MigrationContext, step: MigrationInfo, heads: object, run_args: object) -> None:  # noqa: ARG001 - Alembic passes them by name
    """Tell the caller of a revision that was applied."""
    attributes["applied"].append(step.up_revision_id)


context.configure(
    connection=attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    transactional_ddl=True,
    on_version_apply=_note,
)
context.run_migrations()
