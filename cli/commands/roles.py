"""The commands that go on until they are stopped: processes that execute runs and look after them."""

from __future__ import annotations

import enum
from typing import Annotated

import typer

from tidewheel.cli.options import App, Broker, Namespace, Store, examples


class LogLevel(enum.StrEnum):
    """From which level on log lines are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


#: The end of the help page of each of them.
STOPPING = (
    "\n\nSIGTERM or Ctrl-C: takes nothing new, finishes or hands back what is in hand, and ends with 0;"
    " a second one ends at once."
    "\n\nExit codes: 0 stopped, 2 wrong usage, configuration or app, 3 no such app,"
    " 4 store or broker unreachable, 130 stopped at once."
)

Folder = Annotated[
    str | None,
    typer.Option(
        "--dir",
        metavar="FOLDER",
        show_default=False,
        help="Where its files are, in place of the current folder.",
    ),
]
Queues = Annotated[
    list[str] | None,
    typer.Option(
        "--queue",
        metavar="NAMES",
        show_default=False,
        help="Serve these queues, with commas; may be repeated. Else TIDEWHEEL_QUEUES, else default.",
    ),
]
Slots = Annotated[
    int | None,
    typer.Option(
        "--slots",
        metavar="M",
        show_default=False,
        help="Steps a worker process executes at a time; else TIDEWHEEL_SLOTS, else 128.",
    ),
]
Processes = Annotated[
    int | None,
    typer.Option(
        "--processes",
        metavar="N",
        show_default=False,
        help="Run so many worker processes, and start again any that ends; else TIDEWHEEL_PROCESSES, else 1.",
    ),
]
Health = Annotated[
    str | None,
    typer.Option(
        "--health",
        metavar="HOST:PORT",
        show_default=False,
        help="Answer /healthz and /readyz there, over HTTP; else TIDEWHEEL_HEALTH, else nowhere.",
    ),
]
#: How a supervisor starts its children: nothing for people.
Supervised = Annotated[str | None, typer.Option("--supervised", hidden=True)]
Grace = Annotated[
    float | None,
    typer.Option(
        "--grace",
        metavar="S",
        show_default=False,
        help="How long work in hand may go on when told to stop; else TIDEWHEEL_GRACE, else 30.",
    ),
]
Level = Annotated[LogLevel, typer.Option("--log-level", help="The least important lines to write.")]
JsonLog = Annotated[bool, typer.Option("--json", help="For programs: log lines as JSON, on standard output.")]


def dev_command(
    *,
    app: App,
    folder: Folder = None,
    queues: Queues = None,
    slots: Slots = None,
    grace: Grace = None,
    level: Level = LogLevel.INFO,
    store: Store = None,
    broker: Broker = None,
    namespace: Namespace = None,
    as_json: JsonLog = False,
) -> int:
    """Run an app, with everything it needs, in one process.

    Keeps its store and its broker in two files of the current folder. Stop it, change the
    code, start it again: every run goes on where it was.
    """
    from tidewheel.cli.roles import serving  # noqa: PLC0415 - imported when it runs

    where = serving.dev_where(folder, store, broker, namespace)
    options = serving.Options(queues=queues, slots=slots, grace_s=grace, level=level.value, as_json=as_json)
    return serving.dev(app, where, options)


def up_command(
    *,
    app: App,
    queues: Queues = None,
    processes: Processes = None,
    slots: Slots = None,
    grace: Grace = None,
    health: Health = None,
    level: Level = LogLevel.INFO,
    store: Store = None,
    broker: Broker = None,
    namespace: Namespace = None,
    as_json: JsonLog = False,
) -> int:
    """Run an app on the configured store and broker.

    All roles together: a worker, a keeper, a relay and a projector, in one process; with
    --processes N, N workers and one of each other in a process each. A store of an older release is
    not migrated by it: `tidewheel db migrate` does that.
    """
    from tidewheel.cli.connecting import Where  # noqa: PLC0415 - imported when it runs
    from tidewheel.cli.roles import serving  # noqa: PLC0415 - as above

    options = serving.Options(
        queues=queues,
        slots=slots,
        grace_s=grace,
        processes=processes,
        health=health,
        level=level.value,
        as_json=as_json,
    )
    return serving.up(app, Where(store, broker, namespace), options)


def worker_command(
    *,
    app: App,
    queues: Queues = None,
    processes: Processes = None,
    slots: Slots = None,
    grace: Grace = None,
    health: Health = None,
    level: Level = LogLevel.INFO,
    store: Store = None,
    broker: Broker = None,
    namespace: Namespace = None,
    as_json: JsonLog = False,
    supervised: Supervised = None,
) -> int:
    """Run workers alone: they execute an app's runs.

    Somewhere a keeper has to run too, or nobody wakes what sleeps: `tidewheel keeper`.
    """
    from tidewheel.cli.connecting import Where  # noqa: PLC0415 - imported when it runs
    from tidewheel.cli.roles import serving  # noqa: PLC0415 - as above

    options = serving.Options(
        queues=queues,
        slots=slots,
        grace_s=grace,
        processes=processes,
        health=health,
        level=level.value,
        as_json=as_json,
        supervised=supervised,
    )
    return serving.worker(app, Where(store, broker, namespace), options)


def keeper_command(
    *,
    health: Health = None,
    level: Level = LogLevel.INFO,
    store: Store = None,
    broker: Broker = None,
    namespace: Namespace = None,
    as_json: JsonLog = False,
    supervised: Supervised = None,
) -> int:
    """Run a keeper alone: it wakes what sleeps and was forgotten.

    Fires timers, repeats lost hints, gives up dead workers. Any number may run.
    """
    from tidewheel.cli.connecting import Where  # noqa: PLC0415 - imported when it runs
    from tidewheel.cli.roles import serving  # noqa: PLC0415 - as above

    options = serving.Options(health=health, level=level.value, as_json=as_json, supervised=supervised)
    return serving.keeper(Where(store, broker, namespace), options)


def relay_command(
    *,
    health: Health = None,
    level: Level = LogLevel.INFO,
    store: Store = None,
    broker: Broker = None,
    namespace: Namespace = None,
    as_json: JsonLog = False,
    supervised: Supervised = None,
) -> int:
    """Run a relay alone: it publishes what happened to the event bus.

    Each event goes to the exchange tidewheel.events, under <namespace>.<workflow>.<EventType>, those of
    all namespaces of the store. Any number may run. What cannot be published: `tidewheel dlq list`.
    """
    from tidewheel.cli.connecting import Where  # noqa: PLC0415 - imported when it runs
    from tidewheel.cli.roles import serving  # noqa: PLC0415 - as above

    options = serving.Options(health=health, level=level.value, as_json=as_json, supervised=supervised)
    return serving.relay(Where(store, broker, namespace), options)


def add_to(root: typer.Typer) -> None:
    """Add the commands to *root*."""
    root.command(
        "dev",
        short_help="Run an app, with everything it needs, in one process.",
        epilog=examples(
            "tidewheel dev shop.py:app",
            "tidewheel dev shop.flows:app --dir build --queue default,mail",
        )
        + STOPPING,
    )(dev_command)
    root.command(
        "up",
        short_help="Run an app on the configured store and broker.",
        epilog=examples(
            "tidewheel up shop.py:app --store sqlite:////var/lib/shop/tidewheel.db --processes 4",
            "TIDEWHEEL_STORE=sqlite:////var/lib/shop/tidewheel.db tidewheel up shop.flows:app --json",
        )
        + STOPPING,
    )(up_command)
    root.command(
        "worker",
        short_help="Run workers alone: they execute an app's runs.",
        epilog=examples(
            "tidewheel worker shop.py:app --processes 4 --slots 16",
            "tidewheel worker shop.py:app --queue mail,default --grace 120 --health 0.0.0.0:8080",
        )
        + STOPPING,
    )(worker_command)
    root.command(
        "keeper",
        short_help="Run a keeper alone: it wakes what sleeps and was forgotten.",
        epilog=examples(
            "tidewheel keeper", "tidewheel keeper --store sqlite:///tidewheel.db --health 0.0.0.0:8080"
        )
        + STOPPING,
    )(keeper_command)
    root.command(
        "relay",
        short_help="Run a relay alone: it publishes what happened to the event bus.",
        epilog=examples("tidewheel relay", "tidewheel relay --store postgresql://... --broker amqp://...")
        + STOPPING,
    )(relay_command)
