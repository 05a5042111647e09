"""What anybody may ask for by a message: to start a run, to send it a signal, to cancel it.

A command is JSON that any language can write (``docs/commands.md``). The key it was published under says
which it is, and what does not fit that is refused: a start whose workflow was forgotten is no cancel. Without
such a key it is what it has: a start names a workflow, a signal has a name, a cancel neither. A field that
no command has is refused, since it may be one that was misspelt. Ids are checked by whoever follows it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from tidewheel.broker.errors import PoisonMessage
from tidewheel.broker.message import Message, Publication
from tidewheel.broker.topology import COMMANDS
from tidewheel.journal.run_request import RunRequest
from tidewheel.telemetry.context import TraceContext, headers_of

DEFAULT_NAMESPACE: Final = "default"


class StartCommand(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Start a run, unless it is there.

    ``version`` is the label of the code that is to execute it; without one it is that of whoever takes it.
    ``reply_to`` is the queue of a client that waits for its end. ``request`` is in the place of an
    idempotency key: the contract's names for a start request.
    """

    workflow: str
    input: list[Any] = []
    run_id: str | None = None
    request_id: str | None = None
    idempotency_key: str | None = None
    queue: str | None = None
    version: str | None = None
    namespace: str = DEFAULT_NAMESPACE
    reply_to: str | None = None
    request: RunRequest | None = None


class SignalCommand(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Send a signal to a run."""

    run_id: str
    name: str
    payload: Any = None
    request_id: str | None = None
    namespace: str = DEFAULT_NAMESPACE


class CancelCommand(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Ask a run to stop."""

    run_id: str
    reason: str | None = None
    request_id: str | None = None
    namespace: str = DEFAULT_NAMESPACE


Command: TypeAlias = StartCommand | SignalCommand | CancelCommand

_KEYS: Final[dict[type[Command], str]] = {
    StartCommand: "start",
    SignalCommand: "signal",
    CancelCommand: "cancel",
}
_KINDS: Final = {key: kind for kind, key in _KEYS.items()}
#: What decoding hostile bytes raises; ``RecursionError`` comes from deep nesting.
_NOT_READABLE = (msgspec.MsgspecError, ValueError, RecursionError)

_encode = msgspec.json.Encoder().encode
_decode: Final[dict[type[Command], Callable[[bytes], Command]]] = {
    kind: msgspec.json.Decoder(kind).decode for kind in _KEYS
}
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def publication_of_command(
    command: Command, message_id: str, trace: TraceContext | None = None
) -> Publication:
    """Address *command* to the workers of all namespaces; *trace* is where it is given, if that is known."""
    message = Message(
        body=_encode(command), message_id=message_id, headers={} if trace is None else headers_of(trace)
    )
    return Publication(message=message, exchange=COMMANDS, routing_key=_KEYS[type(command)])


def read_command(body: bytes, key: str = "") -> Command:
    """Return the command that came under *key*, or raise ``PoisonMessage`` with what is wrong with it.

    A key that no command has, as where a message was sent to the queue itself, says nothing.
    """
    kind = _KINDS.get(key) or _kind_of(body)
    try:
        return _decode[kind](body)
    except _NOT_READABLE as error:
        problem = str(error)
    _fields_of(body)  # what is no object is told so
    expected = ", though its key says so" if key in _KINDS else ""
    raise PoisonMessage(f"not a {_KEYS[kind]} command{expected}: {problem}")


def _kind_of(body: bytes) -> type[Command]:
    """Return which command *body* is by what it has."""
    fields = _fields_of(body)
    if "workflow" in fields:
        return StartCommand
    return SignalCommand if "name" in fields else CancelCommand


def _fields_of(body: bytes) -> dict[str, msgspec.Raw]:
    try:
        return _fields(body)
    except _NOT_READABLE as error:
        raise PoisonMessage(f"not a command, which is a JSON object: {error}") from None
