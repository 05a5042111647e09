"""The commands that look after a store: its schema, and whether everything in it can go on."""

from __future__ import annotations

from typing import Annotated

import typer

from tidewheel.cli.options import GROUP, Broker, Json, Namespace, Store, examples

db = typer.Typer(
    help="Look after the store: its schema, and how much is in it.",
    epilog=examples("tidewheel db status", "tidewheel db migrate"),
    **GROUP,
)

Roles = Annotated[
    bool,
    typer.Option(
        "--roles",
        help="On Postgres: also make the roles that keep journals append-only, to be granted to users.",
    ),
]
Fix = Annotated[bool, typer.Option("--fix", help="Wake the runs that nobody would wake.")]
Deep = Annotated[bool, typer.Option("--deep", help="Also read and verify every journal.")]


@db.callback()
def _db() -> None:
    """Make ``db`` a group."""


@db.command(
    "migrate",
    short_help="Bring the store to the schema of this release.",
    epilog=examples(
        "tidewheel db migrate",
        "tidewheel db migrate --store postgresql://owner@db/shop --roles",
    )
    + "\n\nExit codes: 0 up to date, 2 wrong usage, 4 it cannot be used, or is of a newer release.",
)
def migrate_command(*, store: Store = None, roles: Roles = False, as_json: Json = False) -> int:
    """Bring the store to the schema of this release; a SQLite file that is not there is made.

    On Postgres, old and new releases work side by side while their processes are replaced: migrate first.
    """
    from tidewheel.cli import database  # noqa: PLC0415 - imported when it runs

    return database.migrate(store, roles=roles, as_json=as_json)


@db.command(
    "status",
    short_help="Show the store's schema, and how much is in it.",
    epilog=examples("tidewheel db status", "tidewheel db status --json | jq .runs.parked")
    + "\n\nExit codes: 0 up to date, 1 it has another schema, 2 wrong usage, 4 no store.",
)
def status_command(*, store: Store = None, namespace: Namespace = None, as_json: Json = False) -> int:
    """Show the store's schema, and how much is in it. Nothing is changed."""
    from tidewheel.cli import database  # noqa: PLC0415 - imported when it runs
    from tidewheel.cli.connecting import Where  # noqa: PLC0415 - as above

    return database.status(Where(store, None, namespace), as_json=as_json)


def doctor_command(
    *,
    fix: Fix = False,
    deep: Deep = False,
    store: Store = None,
    broker: Broker = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> int:
    """Find out whether everything can go on.

    Looks at the store, the broker, the workers, and at every open run: somebody has to owe it
    its next step. Says what is wrong, and what to do about it.
    """
    from tidewheel.cli.connecting import Where  # noqa: PLC0415 - imported when it runs
    from tidewheel.cli.doctor import visit  # noqa: PLC0415 - as above

    return visit.run(Where(store, broker, namespace), fix=fix, deep=deep, as_json=as_json)


def add_to(root: typer.Typer) -> None:
    """Add the commands to *root*."""
    root.add_typer(db, name="db")
    root.command(
        "doctor",
        short_help="Find out whether everything can go on.",
        epilog=examples(
            "tidewheel doctor", "tidewheel doctor --fix", "tidewheel doctor --deep --json | jq .findings"
        )
        + "\n\nExit codes: 0 nothing found, 1 something found, 2 wrong usage, 4 store or broker unreachable.",
    )(doctor_command)
