"""``tidewheel run signal``, ``cancel``, ``resolve``, ``reject`` and ``unpark``: one word to a run."""

from __future__ import annotations

from typing import Annotated

import typer

from tidewheel.cli.options import Broker, Json, Namespace, RunId, Store, examples

_TALKING = (
    "\n\nExit codes: 0 told, 2 wrong usage or input, 3 no such run, 4 no store, 5 refused: it has ended."
)

_CANCELLING = (
    "\n\nExit codes: 0 asked, or it has ended already; 2 wrong usage or input; 3 no such run; 4 no store."
)

SignalName = Annotated[
    str, typer.Argument(metavar="NAME", show_default=False, help="What the code waits for.")
]
PromiseName = Annotated[
    str, typer.Argument(metavar="PROMISE", show_default=False, help="The promise, by its name.")
]
Payload = Annotated[str, typer.Option("--payload", metavar="JSON", help="What goes with it.")]
Value = Annotated[str, typer.Option("--value", metavar="JSON", help="What the code gets.")]
RequestId = Annotated[
    str | None,
    typer.Option(
        "--request-id",
        metavar="KEY",
        show_default=False,
        help="Sent again with the same key, the run gets it once.",
    ),
]
Reason = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", show_default=False, help="Why, for the record.")
]
Message = Annotated[
    str, typer.Argument(metavar="MESSAGE", show_default=False, help="What the code gets as its error.")
]


def signal_command(
    *,
    run_id: RunId,
    name: SignalName,
    payload: Payload = "null",
    request_id: RequestId = None,
    store: Store = None,
    broker: Broker = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> int:
    """Send a signal to a run; it is kept until the code asks for it."""
    from tidewheel.cli.connecting import Where  # noqa: PLC0415 - imported when it runs
    from tidewheel.cli.runs import verbs  # noqa: PLC0415 - as above

    act = verbs.signal(name, payload, request_id)
    return verbs.run(Where(store, broker, namespace), run_id, act, as_json=as_json)


def cancel_command(
    *,
    run_id: RunId,
    reason: Reason = None,
    store: Store = None,
    broker: Broker = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> int:
    """Ask a run to stop; its code may still clean up. Asking again, or after its end, changes nothing."""
    from tidewheel.cli.connecting import Where  # noqa: PLC0415 - imported when it runs
    from tidewheel.cli.runs import verbs  # noqa: PLC0415 - as above

    return verbs.run(Where(store, broker, namespace), run_id, verbs.cancel(reason), as_json=as_json)


def resolve_command(
    *,
    run_id: RunId,
    promise: PromiseName,
    value: Value = "null",
    store: Store = None,
    broker: Broker = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> int:
    """Give a promise of a run its value."""
    from tidewheel.cli.connecting import Where  # noqa: PLC0415 - imported when it runs
    from tidewheel.cli.runs import verbs  # noqa: PLC0415 - as above

    act = verbs.resolve(promise, value)
    return verbs.run(Where(store, broker, namespace), run_id, act, as_json=as_json)


def reject_command(
    *,
    run_id: RunId,
    promise: PromiseName,
    message: Message,
    store: Store = None,
    broker: Broker = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> int:
    """Let a promise of a run fail: the code gets an error with this message."""
    from tidewheel.cli.connecting import Where  # noqa: PLC0415 - imported when it runs
    from tidewheel.cli.runs import verbs  # noqa: PLC0415 - as above

    act = verbs.reject(promise, message)
    return verbs.run(Where(store, broker, namespace), run_id, act, as_json=as_json)


def unpark_command(
    *,
    run_id: RunId,
    store: Store = None,
    broker: Broker = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> int:
    """Let a parked or quarantined run go on, once what stopped it was mended."""
    from tidewheel.cli.connecting import Where  # noqa: PLC0415 - imported when it runs
    from tidewheel.cli.runs import verbs  # noqa: PLC0415 - as above

    return verbs.run(Where(store, broker, namespace), run_id, verbs.unpark(), as_json=as_json)


def add_to(run: typer.Typer) -> None:
    """Add the commands to the group *run*."""
    run.command(
        "signal",
        short_help="Send a signal to a run.",
        epilog=examples(
            "tidewheel run signal order-42 approved",
            'tidewheel run signal order-42 approved --payload \'{"by": "ann"}\'',
        )
        + _TALKING,
    )(signal_command)
    run.command(
        "cancel",
        short_help="Ask a run to stop.",
        epilog=examples("tidewheel run cancel order-42 --reason 'sold out'") + _CANCELLING,
    )(cancel_command)
    run.command(
        "resolve",
        short_help="Give a promise of a run its value.",
        epilog=examples("tidewheel run resolve order-42 answer --value '\"yes\"'") + _TALKING,
    )(resolve_command)
    run.command(
        "reject",
        short_help="Let a promise of a run fail.",
        epilog=examples("tidewheel run reject order-42 answer 'nobody was there'") + _TALKING,
    )(reject_command)
    run.command(
        "unpark",
        short_help="Let a parked or quarantined run go on.",
        epilog=examples("tidewheel run list --parked", "tidewheel run unpark order-42") + _TALKING,
    )(unpark_command)
