"""What a loop can do to the outside world, refused with what to do instead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NoReturn

from tidewheel.replay.guards import ForbiddenInWorkflow

_USE_TASK = "put it in a task and `await ctx.invoke(task, ...)`, or `await ctx.run(key, fn)`"
_INPUT_OUTPUT = (
    "run_in_executor", "call_soon_threadsafe", "create_connection", "create_server", "create_unix_connection",
    "create_unix_server", "create_datagram_endpoint", "connect_accepted_socket", "subprocess_exec",
    "subprocess_shell", "getaddrinfo", "getnameinfo", "sock_connect", "sock_accept", "sock_recv",
    "sock_recv_into", "sock_recvfrom", "sock_recvfrom_into", "sock_sendall", "sock_sendto", "sock_sendfile",
    "sendfile", "start_tls", "connect_read_pipe", "connect_write_pipe", "add_reader", "remove_reader",
    "add_writer", "remove_writer", "add_signal_handler", "remove_signal_handler", "set_default_executor",
    "shutdown_default_executor",
)  # fmt: skip
_OWNERSHIP = (
    "run_forever", "run_until_complete", "stop", "close", "set_debug", "set_exception_handler",
    "set_task_factory", "get_task_factory",
)  # fmt: skip


def refuse_io(loop: type[asyncio.AbstractEventLoop]) -> None:
    """Give *loop* a refusal for everything that is not movement of the run's own code."""
    for name in _INPUT_OUTPUT:
        setattr(loop, name, _refusal(name, f"it would happen again on every replay: {_USE_TASK}"))
    for name in _OWNERSHIP:
        setattr(loop, name, _refusal(name, "the loop belongs to the run"))
    # An abstract base remembers what was missing when it was made; all of it is defined by now.
    loop.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]  # every abstract class has it


def _refusal(name: str, why: str) -> Callable[..., Any]:
    def refuse(_loop: asyncio.AbstractEventLoop, *_args: Any, **_kwargs: Any) -> NoReturn:
        message = f"loop.{name}() is not allowed in workflow code, {why}"
        raise ForbiddenInWorkflow(message)

    refuse.__name__ = name
    refuse.__doc__ = f"Refused: {why}."
    return refuse
