"""``tidewheel queue``: how many runs of a queue may be under way, and what becomes of more."""

from __future__ import annotations

from typing import Annotated

import typer

from tidewheel.cli.options import GROUP, Json, Namespace, Store, examples

queue = typer.Typer(
    help="Limit how many runs of a queue are under way, and see how many are.",
    epilog=examples(
        "tidewheel queue limit reports --max-running 20",
        "tidewheel queue limit api --max-running 100 --overload reject",
        "tidewheel queue list",
        "tidewheel queue unlimit reports",
    ),
    **GROUP,
)

#: Larger numbers are none: whoever means no limit takes it away.
COUNT_MAX = 1_000_000_000

Queue = Annotated[
    str, typer.Argument(metavar="QUEUE", show_default=False, help="The queue, such as default.")
]
MaxRunning = Annotated[
    int,
    typer.Option(
        "--max-running",
        metavar="N",
        min=0,
        max=COUNT_MAX,
        show_default=False,
        help="Runs that were admitted and have not ended; 0 lets none begin.",
    ),
]
MaxPending = Annotated[
    int,
    typer.Option("--max-pending", metavar="N", min=0, max=COUNT_MAX, help="Runs that wait to be admitted."),
]
Over = Annotated[
    str,
    typer.Option(
        "--overload",
        metavar="WHAT",
        help="What becomes of a start over --max-running: queue, reject or delay.",
    ),
]
Pause = Annotated[
    float,
    typer.Option(
        "--pause",
        metavar="SECONDS",
        help="How long whoever is refused should wait; for delay, how far apart runs are admitted.",
    ),
]

_EXIT_CODES = "\n\nExit codes: 0 done, 2 wrong usage, 4 no store."


@queue.callback()
def _queue() -> None:
    """Make ``queue`` a group."""


@queue.command(
    "limit",
    short_help="Set the limit of a queue, new or changed.",
    epilog=examples(
        "tidewheel queue limit reports --max-running 20 --max-pending 500",
        "tidewheel queue limit api --max-running 100 --overload reject",
    )
    + _EXIT_CODES,
)
def limit_command(
    *,
    name: Queue,
    max_running: MaxRunning,
    max_pending: MaxPending = 10_000,
    overload: Over = "queue",
    pause_s: Pause = 5.0,
    store: Store = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> int:
    """Set the limit of a queue: it holds from the next start on, in every process.

    Runs of the queue that are open count at once; none of them is stopped.
    """
    from tidewheel.cli.connecting import Where  # noqa: PLC0415 - imported when it runs
    from tidewheel.cli.queues import limiting  # noqa: PLC0415 - as above

    return limiting.set_limit(
        Where(store, None, namespace),
        name,
        max_running=max_running,
        max_pending=max_pending,
        overload=overload,
        pause_s=pause_s,
        as_json=as_json,
    )


@queue.command(
    "unlimit",
    short_help="Let a queue be without a limit.",
    epilog=examples("tidewheel queue unlimit reports")
    + "\n\nExit codes: 0 done, 2 wrong usage, 3 the queue has no limit, 4 no store.",
)
def unlimit_command(
    *, name: Queue, store: Store = None, namespace: Namespace = None, as_json: Json = False
) -> int:
    """Let a queue be without a limit; runs that are queued there are admitted by the next keeper."""
    from tidewheel.cli.connecting import Where  # noqa: PLC0415 - imported when it runs
    from tidewheel.cli.queues import limiting  # noqa: PLC0415 - as above

    return limiting.remove_limit(Where(store, None, namespace), name, as_json=as_json)


@queue.command(
    "list",
    short_help="List limits, and what counts in them.",
    epilog=examples("tidewheel queue list", "tidewheel queue list --json | jq '.[].pending'") + _EXIT_CODES,
)
def list_command(*, store: Store = None, namespace: Namespace = None, as_json: Json = False) -> int:
    """List the limits of a namespace, with how many runs are under way and how many are queued."""
    from tidewheel.cli.connecting import Where  # noqa: PLC0415 - imported when it runs
    from tidewheel.cli.queues import limiting  # noqa: PLC0415 - as above

    return limiting.show_list(Where(store, None, namespace), as_json=as_json)


def add_to(root: typer.Typer) -> None:
    """Add the group to *root*."""
    root.add_typer(queue, name="queue")
