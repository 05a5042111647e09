"""What anybody may ask for by a message: to start a run, to send it a signal, to cancel it.

A command is JSON that any language can write (``docs/commands.md``). Which one it is shows in what it has: a
start names a workflow, a signal has a name, a cancel has neither. A field that no command has is refused,
since it may be one that was misspelt. Ids are checked by whoever follows the command.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from tidewheel.broker.errors import PoisonMessage
from tidewheel.broker.message import Message, Publication
from tidewheel.broker.topology import COMMANDS

DEFAULT_NAMESPACE: Final = "default"


class StartCommand(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Start a run, unless it is there. ``reply_to`` is the queue of a client that waits for its end."""

    workflow: str
    input: list[Any] = []
    run_id: str | None = None
    request_id: str | None = None
    idempotency_key: str | None = None
    queue: str | None = None
    namespace: str = DEFAULT_NAMESPACE
    reply_to: str | None = None


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
#: What decoding hostile bytes raises; ``RecursionError`` comes from deep nesting.
_NOT_READABLE = (msgspec.MsgspecError, ValueError, RecursionError)

_encode = msgspec.json.Encoder().encode
_start: Callable[[bytes], StartCommand] = msgspec.json.Decoder(StartCommand).decode
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def publication_of_command(command: Command, message_id: str) -> Publication:
    """Address *command* to the workers of all namespaces."""
    message = Message(body=_encode(command), message_id=message_id)
    return Publication(message=message, exchange=COMMANDS, routing_key=_KEYS[type(command)])


def read_command(body: bytes) -> Command:
    """Return the command, or raise ``PoisonMessage`` with what is wrong with it."""
    try:
        return _start(body)  # what most are
    except _NOT_READABLE:
        return _read_any(body)


def _read_any(body: bytes) -> Command:
    try:
        fields = _fields(body)
    except _NOT_READABLE as error:
        raise PoisonMessage(f"not a command, which is a JSON object: {error}") from None
    kind: type[Command] = CancelCommand
    if "workflow" in fields:
        kind = StartCommand
    elif "name" in fields:
        kind = SignalCommand
    try:
        command: Command = msgspec.json.decode(body, type=kind)
        return command
    except _NOT_READABLE as error:
        raise PoisonMessage(f"not a {_KEYS[kind]} command: {error}") from None
