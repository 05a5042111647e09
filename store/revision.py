"""Which schema this release needs, and what is said of a database that has another."""

from __future__ import annotations

from tidewheel.store.errors import SchemaMismatch

#: The newest revision in ``migrations/versions``. Revisions are numbers, so that newer ones can be told.
NEWEST = "0005"


#: What ``db migrate --roles`` makes on Postgres.
ROLES = (
    "tidewheel_migrator",
    "tidewheel_worker",
    "tidewheel_keeper",
    "tidewheel_relay",
    "tidewheel_projector",
    "tidewheel_reader",
)


def is_newer(revision: str | None) -> bool:
    """Tell whether a newer release made the schema."""
    return revision is not None and int(revision) > int(NEWEST)


def lacking(database: str) -> SchemaMismatch:
    """Return the error for a database that has the tables of this release, but not all its functions."""
    return SchemaMismatch(
        f"{database} has not all functions that this release calls: run `tidewheel db migrate`"
    )


def mismatch(database: str, revision: str | None) -> SchemaMismatch:
    """Return the error for a database whose schema is not that of this release."""
    if revision is None:
        return SchemaMismatch(f"{database} has no schema of a store yet: run `tidewheel db migrate`")
    if is_newer(revision):
        return SchemaMismatch(
            f"{database} has schema {revision}, of a newer release; this one knows {NEWEST}: "
            "upgrade Tidewheel"
        )
    return SchemaMismatch(
        f"{database} has schema {revision}, and this release needs {NEWEST}: run `tidewheel db migrate`"
    )
