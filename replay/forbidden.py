"""What a loop can do to the outside world, refused with what to do instead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NoReturn

from tidewheel.replay.guards import USE_TASK, refused

_INPUT_OUTPUT = (
    "run_in_executor", "call_soon_threadsafe", "create_connection", "create_server", "create_unix_connection",
    "create_unix_server", "create_datagram_endpoint", "connect_accepted_socket", "subprocess_exec",
    "subprocess_shell", "getaddrinfo", "getnameinfo", "sock_connect", "sock_accept", "sock_recv",
    "sock_recv_into", "sock_recvfrom", "sock_recvfrom_into", "sock_sendall", "sock_sendto", "sock_sendfile",
    "sendfile", "start_tls", "connect_read_pipe", "connect_write_pipe", "add_reader", "remove_reader",
    "add_writer", "remove_writer", "add_signal_handler", "remove_signal_handler", "set_default_executor",
    "shutdown_default_executor",
)  # fmt: skip
_MOVEMENT = ("run_forever", "run_until_complete", "stop", "close")
_SETTINGS = ("set_debug", "set_exception_handler", "set_task_factory")


def refuse_io(loop: type[asyncio.AbstractEventLoop]) -> None:
    """Give *loop* a refusal for everything that is not movement of the run's own code."""
    for names, instead in (
        (_INPUT_OUTPUT, USE_TASK),
        (_MOVEMENT, "use `await`, the run moves its loop itself"),
        (_SETTINGS, "leave it as it is, the loop belongs to the run"),
    ):
        for name in names:
            setattr(loop, name, _refusal(name, instead))
    loop.get_task_factory = _no_task_factory  # type: ignore[assignment,method-assign]  # anyio asks for every task
    # An abstract base remembers what was missing when it was made; all of it is defined by now.
    loop.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]  # every abstract class has it


def _no_task_factory(_loop: asyncio.AbstractEventLoop) -> None:
    """There is no factory: the loop makes its tasks itself."""


def _refusal(name: str, instead: str) -> Callable[..., Any]:
    def refuse(_loop: asyncio.AbstractEventLoop, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise refused(f"loop.{name}()", instead)

    refuse.__name__ = name
    refuse.__doc__ = f"Refused: {instead}."
    return refuse
