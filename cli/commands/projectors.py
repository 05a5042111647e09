"""The commands of the projector: the role itself, and making its snapshots again."""

from __future__ import annotations

from typing import Annotated

import typer

from tidewheel.cli.commands.roles import STOPPING, Health, JsonLog, Level, LogLevel, Supervised
from tidewheel.cli.options import GROUP, Broker, Json, Namespace, Store, examples

projector = typer.Typer(
    help="Run a projector alone: it keeps snapshots of runs, for people to query.",
    epilog=examples(
        "tidewheel projector",
        "tidewheel projector --app shop.py:app --health 0.0.0.0:8080",
        "tidewheel projector rebuild --dry-run",
    )
    + STOPPING,
    **GROUP,
)

AppOption = Annotated[
    str | None,
    typer.Option(
        "--app",
        metavar="APP",
        show_default=False,
        help="Also keep this app's own projections: module:app, or path.py:app for a file.",
    ),
]
OneRun = Annotated[
    str | None, typer.Option("--run", metavar="ID", show_default=False, help="This run alone.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be written.")]
OwnProjection = Annotated[
    str | None,
    typer.Option(
        "--projection",
        metavar="NAME",
        show_default=False,
        help="Empty and fill the table of this projection of --app instead, from the runs there are.",
    ),
]
OwnApp = Annotated[
    str | None,
    typer.Option(
        "--app",
        metavar="APP",
        show_default=False,
        help="The app of --projection: module:app, or path.py:app.",
    ),
]


@projector.callback(invoke_without_command=True)
def projector_command(
    context: typer.Context,
    *,
    app: AppOption = None,
    health: Health = None,
    level: Level = LogLevel.INFO,
    store: Store = None,
    broker: Broker = None,
    namespace: Namespace = None,
    as_json: JsonLog = False,
    supervised: Supervised = None,
) -> int:
    """Run a projector alone: it keeps snapshots of runs, for people to query.

    Reads the event bus, which `tidewheel relay` publishes to. Any number may run: they share the work, and
    take over from one that ends.
    """
    if context.invoked_subcommand is not None:
        return 0
    from tidewheel.cli.connecting import Where  # noqa: PLC0415 - imported when it runs
    from tidewheel.cli.roles import serving  # noqa: PLC0415 - as above

    options = serving.Options(health=health, level=level.value, as_json=as_json, supervised=supervised)
    return serving.projector(app, Where(store, broker, namespace), options)


@projector.command(
    "rebuild",
    short_help="Make snapshots again from the journals.",
    epilog=examples(
        "tidewheel projector rebuild",
        "tidewheel projector rebuild --run order-42 --dry-run --json",
        "tidewheel projector rebuild --app shop.py:app --projection sales_by_item",
    )
    + "\n\nExit codes: 0 done, 1 a run cannot be read, or with --dry-run a snapshot would be written,"
    " 2 wrong usage, 3 no such run, 4 no store.",
)
def rebuild_command(
    *,
    run_id: OneRun = None,
    projection: OwnProjection = None,
    app: OwnApp = None,
    dry_run: DryRun = False,
    store: Store = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> int:
    """Make snapshots again from the journals, where they differ.

    Projectors may go on meanwhile. A snapshot that was damaged or deleted is as it was after that.
    """
    from tidewheel.cli import projecting, projecting_again  # noqa: PLC0415 - imported when it runs
    from tidewheel.cli.connecting import Where  # noqa: PLC0415 - as above

    if projection is not None or app is not None:
        if projection is None or app is None or run_id is not None:
            raise typer.BadParameter("give --projection and --app together, and without --run")
        return projecting_again.run(
            Where(store, None, namespace), app, projection, dry_run=dry_run, as_json=as_json
        )
    return projecting.run(Where(store, None, namespace), run_id=run_id, dry_run=dry_run, as_json=as_json)


def add_to(root: typer.Typer) -> None:
    """Add the commands to *root*."""
    root.add_typer(projector, name="projector")
