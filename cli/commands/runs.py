"""``tidewheel run``: start runs and look at them. How to talk to them is in ``verbs``."""

from __future__ import annotations

from typing import Annotated

import typer

from tidewheel.cli.commands import verbs
from tidewheel.cli.options import GROUP, Broker, Json, Namespace, RunId, Store, examples

run = typer.Typer(
    help="Start runs, look at them, and talk to them.",
    epilog=examples(
        "tidewheel run start order --input '[7]'",
        "tidewheel run list --status RUNNING",
        "tidewheel run show order-42",
        "tidewheel run signal order-42 approved --payload true",
    ),
    **GROUP,
)

_LOOKING = "\n\nExit codes: 0 shown, 2 wrong usage, 3 no such run, 4 no store."

Workflow = Annotated[
    str, typer.Argument(metavar="WORKFLOW", show_default=False, help="The workflow, by its name.")
]
Input = Annotated[
    str, typer.Option("--input", metavar="JSON", help="The arguments: a list, such as '[7, \"express\"]'.")
]
RunIdOption = Annotated[
    str | None,
    typer.Option("--run-id", metavar="ID", show_default=False, help="The run's id; else one is made for it."),
]
IdempotencyKey = Annotated[
    str | None,
    typer.Option(
        "--idempotency-key",
        metavar="KEY",
        show_default=False,
        help="Start at most one run with this key; again, it is the same run.",
    ),
]
Queue = Annotated[
    str | None,
    typer.Option("--queue", metavar="NAME", show_default=False, help="Whose workers take it."),
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until it ends, and print its result.")]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout", metavar="S", show_default=False, help="Wait at most so many seconds; the run goes on."
    ),
]
Status = Annotated[
    str | None,
    typer.Option(
        "--status", metavar="WORD", show_default=False, help="PENDING, RUNNING, COMPLETED, FAILED and so on."
    ),
]
OfWorkflow = Annotated[
    str | None, typer.Option("--workflow", metavar="NAME", show_default=False, help="Of this workflow only.")
]
Limit = Annotated[int, typer.Option("--limit", metavar="N", help="At most so many, the newest.")]
Parked = Annotated[bool, typer.Option("--parked", help="Only those that wait for an operator or other code.")]
All = Annotated[bool, typer.Option("--all", help="Every row, however many there are.")]
Ascii = Annotated[bool, typer.Option("--ascii", help="Nothing but ASCII.")]


def add_to(root: typer.Typer) -> None:
    """Add the group to *root*."""
    verbs.add_to(run)
    root.add_typer(run, name="run")


@run.callback()
def _run() -> None:
    """Make ``run`` a group."""


@run.command(
    "start",
    short_help="Start a run of a workflow.",
    epilog=examples(
        "tidewheel run start order --input '[7]'",
        "tidewheel run start order --input '[7]' --run-id order-42 --wait --timeout 60",
        "tidewheel run start order --idempotency-key cart-9 --wait --json | jq .result",
    )
    + "\n\nExit codes: 0 started (with --wait: completed); 1 failed, cancelled or not ended in time;"
    " 2 wrong usage or input; 4 no store; 5 the id or key belongs to a run with another input;"
    " 130 interrupted, and the run goes on.",
)
def start_command(
    *,
    workflow: Workflow,
    given: Input = "[]",
    run_id: RunIdOption = None,
    idempotency_key: IdempotencyKey = None,
    queue: Queue = None,
    wait: Wait = False,
    timeout: Timeout = None,
    store: Store = None,
    broker: Broker = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> int:
    """Start a run of a workflow.

    Prints the run's id, or with --wait its result. From then on the run is in the store: it
    goes on whatever becomes of this command, as soon as a worker has its code.
    """
    from tidewheel.cli.connecting import Where  # noqa: PLC0415 - imported when it runs
    from tidewheel.cli.runs import starting  # noqa: PLC0415 - as above

    wanted = starting.Wanted(
        workflow=workflow,
        input=given,
        run_id=run_id,
        idempotency_key=idempotency_key,
        queue=queue,
        wait=wait,
        timeout_s=timeout,
    )
    return starting.run(Where(store, broker, namespace), wanted, as_json=as_json)


@run.command(
    "result",
    short_help="Wait until a run ends, and print its result.",
    epilog=examples(
        "tidewheel run result order-42",
        "tidewheel run result order-42 --timeout 60 --json | jq .result",
    )
    + "\n\nExit codes: 0 completed; 1 failed, cancelled or not ended in time; 2 wrong usage;"
    " 3 no such run; 4 no store; 130 interrupted, and the run goes on.",
)
def result_command(
    *,
    run_id: RunId,
    timeout: Timeout = None,
    store: Store = None,
    broker: Broker = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> int:
    """Wait until a run ends, and print its result, as `run start --wait` does."""
    from tidewheel.cli.connecting import Where  # noqa: PLC0415 - imported when it runs
    from tidewheel.cli.runs import waiting  # noqa: PLC0415 - as above

    return waiting.run(Where(store, broker, namespace), run_id, timeout, as_json=as_json)


@run.command(
    "list",
    short_help="List runs, the newest first.",
    epilog=examples(
        "tidewheel run list",
        "tidewheel run list --status FAILED --workflow order --limit 10",
        "tidewheel run list --json | jq -r '.[].run_id'",
    )
    + "\n\nExit codes: 0 listed, 2 wrong usage, 4 no store.",
)
def list_command(
    *,
    status: Status = None,
    workflow: OfWorkflow = None,
    parked: Parked = False,
    limit: Limit = 50,
    store: Store = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> int:
    """List runs, the newest first."""
    from tidewheel.cli.connecting import Where  # noqa: PLC0415 - imported when it runs
    from tidewheel.cli.runs import table  # noqa: PLC0415 - as above

    chosen = table.Chosen(status=status, workflow=workflow, parked=parked, limit=limit)
    return table.run(Where(store, None, namespace), chosen, as_json=as_json)


@run.command(
    "show",
    short_help="Show how a run stands, and what took how long.",
    epilog=examples(
        "tidewheel run show order-42",
        "tidewheel run show order-42 --all --ascii",
        "tidewheel run show order-42 --json | jq .status",
    )
    + _LOOKING,
)
def show_command(
    *,
    run_id: RunId,
    every: All = False,
    ascii_only: Ascii = False,
    store: Store = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> int:
    """Show how a run stands, and what took how long.

    As JSON it is the run's snapshot: its status and its steps.
    """
    from tidewheel.cli.connecting import Where  # noqa: PLC0415 - imported when it runs
    from tidewheel.cli.runs import showing  # noqa: PLC0415 - as above

    where = Where(store, None, namespace)
    return showing.run(where, run_id, every=every, ascii_only=ascii_only, as_json=as_json)


@run.command(
    "journal",
    short_help="Print everything that happened to a run.",
    epilog=examples(
        "tidewheel run journal order-42",
        "tidewheel run journal order-42 --json > run.json",
    )
    + _LOOKING,
)
def journal_command(
    *, run_id: RunId, store: Store = None, namespace: Namespace = None, as_json: Json = False
) -> int:
    """Print everything that happened to a run: one line per event, or the journal as JSON."""
    from tidewheel.cli.connecting import Where  # noqa: PLC0415 - imported when it runs
    from tidewheel.cli.runs import events  # noqa: PLC0415 - as above

    return events.run(Where(store, None, namespace), run_id, as_json=as_json)


@run.command(
    "watch",
    short_help="Follow a run until it ends.",
    epilog=examples("tidewheel run watch order-42", "tidewheel run watch order-42 --json | jq .type")
    + "\n\nExit codes: 0 completed; 1 failed or cancelled; 2 wrong usage; 3 no such run; 4 no store;"
    " 130 interrupted, and the run goes on.",
)
def watch_command(
    *, run_id: RunId, store: Store = None, namespace: Namespace = None, as_json: Json = False
) -> int:
    """Follow a run until it ends: what has happened so far, then what happens.

    On a terminal a line at the bottom says how it stands. As JSON each line is an event of
    the journal.
    """
    from tidewheel.cli.connecting import Where  # noqa: PLC0415 - imported when it runs
    from tidewheel.cli.runs import watching  # noqa: PLC0415 - as above

    return watching.run(Where(store, None, namespace), run_id, as_json=as_json)
