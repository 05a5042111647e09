"""Refusals for what replay cannot repeat: clocks, chance, files, sockets, threads, processes.

Active only while a workflow's code is moving on its deterministic loop, in the
thread that moves it; for everything else in the process the patched functions
are the originals, and outside such moments they are not even patched. What
cannot be patched (``datetime.now``, a name imported earlier) is found by
``tidewheel check`` and when a workflow is registered.
"""

from __future__ import annotations

import asyncio
import functools
import os
import random
import secrets
import sys
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from tidewheel.journal.errors import TidewheelError


class ForbiddenInWorkflow(TidewheelError):
    """Workflow code did something that cannot be repeated on replay. The message names what to use."""


_RANDOM = "use ctx.random()"
_TASK = "put it in a task and `await ctx.invoke(task, ...)`, or `await ctx.run(key, fn)`"

_SECRETS = ("token_bytes", "token_hex", "token_urlsafe", "randbelow", "randbits", "choice")

#: Module functions that are replaced while workflow code moves, and what to use instead.
_REFUSED: tuple[tuple[Any, str, str], ...] = (
    (time, "time", "use ctx.now()"),
    (time, "time_ns", "use ctx.now()"),
    (time, "monotonic", "use ctx.now()"),
    (time, "monotonic_ns", "use ctx.now()"),
    (time, "perf_counter", "use ctx.now(), or measure inside a task"),
    (time, "perf_counter_ns", "use ctx.now(), or measure inside a task"),
    (time, "sleep", "use `await ctx.sleep(seconds)`"),
    (uuid, "uuid1", "use ctx.uuid()"),
    (uuid, "uuid4", "use ctx.uuid()"),
    (os, "urandom", "use ctx.random() or ctx.uuid()"),
    *((secrets, name, "use ctx.random() or ctx.uuid()") for name in _SECRETS),
    (threading.Thread, "start", _TASK),  # not audited before Python 3.12
    *(
        (random, name, _RANDOM + ", or random.Random(seed) with a seed from ctx.random()")
        for name in (
            "random", "uniform", "randint", "randrange", "choice", "choices", "sample", "shuffle",
            "gauss", "normalvariate", "expovariate", "betavariate", "triangular", "getrandbits", "randbytes",
        )
    ),
)  # fmt: skip

#: Audit events that mean the outside world is touched. Prefixes end in a dot.
_AUDITED = frozenset(
    {
        "open", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.listdir",
        "os.scandir", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.kill", "subprocess.Popen",
        "_thread.start_new_thread", "_thread.start_joinable_thread", "socket.connect", "socket.bind",
        "socket.getaddrinfo", "socket.sendto", "socket.gethostbyname", "sqlite3.connect", "tempfile.mkstemp",
        "tempfile.mkdtemp", "shutil.copyfile", "urllib.Request",
    }
)  # fmt: skip

#: Modules that may read the clock or a source file on the code's behalf: log records carry a
#: time, tracebacks quote lines, imports open files. None of it reaches the code's decisions.
_TRUSTED_CALLERS = frozenset(
    {"logging", "linecache", "importlib._bootstrap", "importlib._bootstrap_external", "warnings", "tokenize",
     "traceback", "structlog", "zipimport"}
)  # fmt: skip

_lock = threading.Lock()
_moving = 0
_audit_installed = False
_refuses: Callable[[object], bool] = lambda _loop: False  # noqa: E731 - replaced by `protect`


def protect(is_workflow_loop: Callable[[object], bool]) -> None:
    """Tell the guards which running loop is a workflow's; called once by the loop's module."""
    global _refuses  # noqa: PLW0603 - the one switch of this process-wide guard
    _refuses = is_workflow_loop


def raise_guards() -> None:
    """Put the refusals in place; balanced by ``lower_guards``. Threads may overlap."""
    global _moving, _audit_installed  # noqa: PLW0603 - process-wide by nature
    with _lock:
        _moving += 1
        if _moving > 1:
            return
        if not _audit_installed:
            sys.addaudithook(_audit)
            _audit_installed = True
        for module, name, _original, refusal in _PATCHES:
            setattr(module, name, refusal)


def lower_guards() -> None:
    """Give the process its own functions back once no workflow is moving."""
    global _moving  # noqa: PLW0603 - process-wide by nature
    with _lock:
        _moving -= 1
        if _moving == 0:
            for module, name, original, _refusal in _PATCHES:
                setattr(module, name, original)


def _in_workflow() -> bool:
    return _refuses(asyncio._get_running_loop())  # noqa: SLF001 - the public call raises where there is none


def _trusted_caller(depth: int) -> bool:
    frame = sys._getframe(depth)  # noqa: SLF001 - the only way to see who is calling
    for _ in range(12):
        name = frame.f_globals.get("__name__", "")
        if name in _TRUSTED_CALLERS or name.partition(".")[0] in _TRUSTED_CALLERS:
            return True
        if frame.f_back is None:
            return False
        frame = frame.f_back
    return False


def _refusal(original: Callable[..., Any], shown: str, instead: str) -> Callable[..., Any]:
    @functools.wraps(original)
    def refuse(*args: Any, **kwargs: Any) -> Any:
        if _in_workflow() and not _trusted_caller(2):
            message = f"{shown}() cannot be repeated on replay: {instead}"
            raise ForbiddenInWorkflow(message)
        return original(*args, **kwargs)

    return refuse


_PATCHES = tuple(
    (
        module,
        name,
        getattr(module, name),
        _refusal(getattr(module, name), f"{module.__name__}.{name}", instead),
    )
    for module, name, instead in _REFUSED
)


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if _moving == 0 or event not in _AUDITED or not _in_workflow() or _trusted_caller(2):
        return
    touched = f"{event}({args[0]!r})" if args and isinstance(args[0], str) else event
    message = f"{touched} is not allowed in workflow code, it would happen again on every replay: {_TASK}"
    raise ForbiddenInWorkflow(message)
