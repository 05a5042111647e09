"""The commands that look at journals, and at the code that made them."""

from __future__ import annotations

import enum
from typing import Annotated

import typer

from tidewheel.cli.options import (
    GROUP,
    App,
    File,
    Json,
    Namespace,
    OptionalRunId,
    Store,
    examples,
)

journal = typer.Typer(
    help="Look at journals: what happened to a run.",
    epilog=examples("tidewheel journal verify --file run.json", "tidewheel journal verify order-42"),
    **GROUP,
)


class ChartFormat(enum.StrEnum):
    """What ``graph`` can write."""

    MERMAID = "mermaid"


OptionalApp = Annotated[
    str | None,
    typer.Argument(
        metavar="APP", show_default=False, help="Also check that this app has the run's workflow."
    ),
]
RunIds = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ID]...", show_default=False, help="Runs of the store, in place of --file."),
]
All = Annotated[bool, typer.Option("--all", help="Every run of the namespace.")]
Workflow = Annotated[
    str | None,
    typer.Option(
        "--workflow",
        metavar="NAME",
        show_default=False,
        help="The workflow to replay; otherwise the one the journal names.",
    ),
]
RunOption = Annotated[
    str | None,
    typer.Option("--run", metavar="ID", show_default=False, help="A run of the store, in place of --file."),
]
Strict = Annotated[bool, typer.Option("--strict", help="Let warnings fail the check too.")]
Format = Annotated[ChartFormat, typer.Option("--format", help="What to write.")]


@journal.callback()
def _journal() -> None:
    """Make ``journal`` a group even while it has one command."""


@journal.command(
    "verify",
    short_help="List every rule that a journal breaks.",
    epilog=examples(
        "tidewheel journal verify --file run.json",
        "cat run.json | tidewheel journal verify --file -",
        "tidewheel journal verify order-42 order-43",
        "tidewheel journal verify --all --json | jq .rule",
    )
    + "\n\nExit codes: 0 valid, 1 broken or unreadable, 2 wrong usage, 3 no such file or run,"
    " 4 no store.",
)
def verify_command(
    *,
    run_ids: RunIds = None,
    every: All = False,
    file: File = None,
    store: Store = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> int:
    """List every rule that a journal breaks.

    Each breach is a line of JSON with the rule, the event where it fails (run_seq) and a
    message, and the run where it comes from the store. A valid journal prints nothing. What
    cannot be read breaks the rule FORMAT.
    """
    from tidewheel.cli import verify  # noqa: PLC0415 - imported when it runs
    from tidewheel.cli.connecting import Where  # noqa: PLC0415 - as above

    ids = list(run_ids or ())
    verify.check_source(file, ids, every=every)
    if file is not None:
        return verify.run(file, as_json=as_json)
    where = Where(store=store, namespace=namespace)
    return verify.run_stored(where, ids or None, as_json=as_json)


def replay_command(
    *,
    app: App,
    run_id: OptionalRunId = None,
    file: File = None,
    workflow: Workflow = None,
    store: Store = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> int:
    """Run a workflow's code against a recorded journal.

    Nothing is executed: results come from the journal. The report says how the run stands, or
    in a violation which command of the code differs from the journal.
    """
    from tidewheel.cli import replay  # noqa: PLC0415 - imported when it runs
    from tidewheel.cli.connecting import Where  # noqa: PLC0415 - as above
    from tidewheel.cli.recorded import source_of  # noqa: PLC0415 - as above

    source = source_of("tidewheel replay", file, run_id, Where(store=store, namespace=namespace))
    return replay.run(app, source, workflow, as_json=as_json)


def check_command(*, app: App, strict: Strict = False, as_json: Json = False) -> int:
    """Find what in an app's workflows would not replay.

    Reads the source of each workflow for clocks, random numbers, files, threads and the like.
    A line that ends with the comment "# tidewheel: ignore" is skipped.
    """
    from tidewheel.cli import check  # noqa: PLC0415 - imported when it runs

    return check.run(app, strict=strict, as_json=as_json)


def graph_command(
    *,
    app: OptionalApp = None,
    file: File = None,
    run_id: RunOption = None,
    chart_format: Format = ChartFormat.MERMAID,
    store: Store = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> int:
    """Draw a recorded run as a flowchart.

    The text is Mermaid: paste it where Markdown is shown, or into a Mermaid editor. Arrows
    lead from what the code was shown to what it then asked for.
    """
    from tidewheel.cli import graph  # noqa: PLC0415 - imported when it runs
    from tidewheel.cli.connecting import Where  # noqa: PLC0415 - as above
    from tidewheel.cli.recorded import source_of  # noqa: PLC0415 - as above

    source = source_of("tidewheel graph", file, run_id, Where(store=store, namespace=namespace))
    return graph.run(app, source, chart_format.value, as_json=as_json)


def add_to(root: typer.Typer) -> None:
    """Add the commands to *root*."""
    root.add_typer(journal, name="journal")
    root.command(
        "replay",
        short_help="Run a workflow's code against a recorded journal.",
        epilog=examples(
            "tidewheel replay shop.py:app --file run.json",
            "tidewheel replay shop.py:app order-42",
            "tidewheel replay shop.flows:app --file run.json --workflow fulfil",
            "tidewheel replay shop.py:app --file run.json --json | jq .outcome",
        )
        + "\n\nExit codes: 0 completed, blocked or continued; 1 violation, failed or cancelled;"
        " 2 not a journal of that workflow; 3 no such app, workflow, file or run; 4 no store.",
    )(replay_command)
    root.command(
        "check",
        short_help="Find what in an app's workflows would not replay.",
        epilog=examples(
            "tidewheel check shop.py:app",
            "tidewheel check shop.flows:app --strict",
            "tidewheel check shop.py:app --json | jq .hint",
        )
        + "\n\nExit codes: 0 clean or only warnings, 1 an error (with --strict, also a warning),"
        " 2 wrong usage, 3 no such app.",
    )(check_command)
    root.command(
        "graph",
        short_help="Draw a recorded run as a flowchart.",
        epilog=examples(
            "tidewheel graph --file run.json > run.mmd",
            "tidewheel graph --run order-42",
            "tidewheel graph shop.py:app --file run.json",
        )
        + "\n\nExit codes: 0 drawn, 2 not a journal, 3 no such file, run, app or workflow, 4 no store.",
    )(graph_command)
