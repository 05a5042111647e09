"""``tidewheel dlq``: what could not be published to the event bus."""

from __future__ import annotations

from typing import Annotated

import typer

from tidewheel.cli.options import GROUP, Json, Namespace, Store, examples

dlq = typer.Typer(
    help="Look at events that could not be published, and try them again or let them go.",
    epilog=examples(
        "tidewheel dlq list",
        "tidewheel dlq show order-42@3",
        "tidewheel dlq redrive --all --dry-run",
        "tidewheel dlq discard order-42@3",
    ),
    **GROUP,
)

Letter = Annotated[
    str, typer.Argument(metavar="ID", show_default=False, help="The dead letter, such as order-42@3.")
]
Letters = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ID]...", show_default=False, help="Dead letters, such as order-42@3."),
]
OfRun = Annotated[
    str | None, typer.Option("--run", metavar="ID", show_default=False, help="Those of this run only.")
]
OfWorkflow = Annotated[
    str | None,
    typer.Option("--workflow", metavar="NAME", show_default=False, help="Those of this workflow only."),
]
All = Annotated[bool, typer.Option("--all", help="Every one of the namespace.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say which, and change nothing.")]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, help="At most so many.")]

_MOVING = "\n\nExit codes: 0 done, 2 wrong usage, 3 no such dead letter, 4 no store."


@dlq.callback()
def _dlq() -> None:
    """Make ``dlq`` a group."""


@dlq.command(
    "list",
    short_help="List dead letters.",
    epilog=examples("tidewheel dlq list", "tidewheel dlq list --workflow order --json | jq '.[].id'")
    + "\n\nExit codes: 0 shown, 2 wrong usage, 4 no store.",
)
def list_command(
    *,
    run_id: OfRun = None,
    workflow: OfWorkflow = None,
    limit: Limit = 50,
    store: Store = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> int:
    """List dead letters, those of the oldest run first.

    A dead letter holds back the later events of its own run, and of no other.
    """
    from tidewheel.cli.connecting import Where  # noqa: PLC0415 - imported when it runs
    from tidewheel.cli.dead_letters import choosing, showing  # noqa: PLC0415 - as above

    chosen = choosing.Chosen(run_id=run_id, workflow=workflow)
    return showing.show_list(Where(store, None, namespace), chosen, limit=limit, as_json=as_json)


@dlq.command(
    "show",
    short_help="Show one dead letter, and the events in it.",
    epilog=examples("tidewheel dlq show order-42@3")
    + "\n\nExit codes: 0 shown, 2 wrong usage, 3 no such dead letter, 4 no store.",
)
def show_command(
    *, letter: Letter, store: Store = None, namespace: Namespace = None, as_json: Json = False
) -> int:
    """Show one dead letter: why it died, how often it was tried, and the events in it."""
    from tidewheel.cli.connecting import Where  # noqa: PLC0415 - imported when it runs
    from tidewheel.cli.dead_letters import showing  # noqa: PLC0415 - as above

    return showing.show_one(Where(store, None, namespace), letter, as_json=as_json)


@dlq.command(
    "redrive",
    short_help="Let dead letters be tried again.",
    epilog=examples("tidewheel dlq redrive order-42@3", "tidewheel dlq redrive --workflow order") + _MOVING,
)
def redrive_command(
    *,
    letters: Letters = None,
    run_id: OfRun = None,
    workflow: OfWorkflow = None,
    every: All = False,
    dry_run: DryRun = False,
    store: Store = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> int:
    """Let dead letters be tried again, as if for the first time.

    What waits behind them follows, in order. Mend first what they died of.
    """
    from tidewheel.cli.connecting import Where  # noqa: PLC0415 - imported when it runs
    from tidewheel.cli.dead_letters import choosing, moving  # noqa: PLC0415 - as above

    chosen = choosing.Chosen(ids=tuple(letters or ()), run_id=run_id, workflow=workflow, every=every)
    where = Where(store, None, namespace)
    return moving.move(where, chosen, "redrive", dry_run=dry_run, as_json=as_json)


@dlq.command(
    "discard",
    short_help="Let dead letters go: their events are never published.",
    epilog=examples("tidewheel dlq discard order-42@3", "tidewheel dlq discard --run order-42 --dry-run")
    + _MOVING,
)
def discard_command(
    *,
    letters: Letters = None,
    run_id: OfRun = None,
    workflow: OfWorkflow = None,
    every: All = False,
    dry_run: DryRun = False,
    store: Store = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> int:
    """Let dead letters go: their events are never published, and their runs go on without them.

    Consumers see the gap by prevSeq. The journal keeps everything.
    """
    from tidewheel.cli.connecting import Where  # noqa: PLC0415 - imported when it runs
    from tidewheel.cli.dead_letters import choosing, moving  # noqa: PLC0415 - as above

    chosen = choosing.Chosen(ids=tuple(letters or ()), run_id=run_id, workflow=workflow, every=every)
    where = Where(store, None, namespace)
    return moving.move(where, chosen, "discard", dry_run=dry_run, as_json=as_json)


def add_to(root: typer.Typer) -> None:
    """Add the group to *root*."""
    root.add_typer(dlq, name="dlq")
