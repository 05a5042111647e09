"""How code that is given up ends: tasks, coroutines and generators that nobody will go on with.

Dead code may raise anything and there is nobody to tell; what matters is that nothing of it is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, Iterator
from typing import Any


@contextlib.contextmanager
def stubborn_code_unheard() -> Iterator[None]:
    """Say nothing of code that goes on although it was told to end."""
    hook = sys.unraisablehook

    def unraisable(problem: sys.UnraisableHookArgs) -> None:
        if "ignored GeneratorExit" not in str(problem.exc_value):
            hook(problem)

    sys.unraisablehook = unraisable
    try:
        yield
    finally:
        sys.unraisablehook = hook


def drop_task(task: asyncio.Task[Any]) -> None:
    """End *task*, and untie it from what it waits for."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - dropped on purpose
    task._log_traceback = False  # noqa: SLF001 - dropped on purpose
    if task.done():
        return
    _close(task.get_coro())
    # A pending task and what it waits for hold each other: untie them, or only the collector could.
    waiter = task._fut_waiter  # type: ignore[attr-defined]  # noqa: SLF001 - no public way to untie them
    if waiter is not None and not isinstance(waiter, asyncio.Task):
        asyncio.Future.cancel(waiter)
    for callback, _context in task._callbacks or ():  # noqa: SLF001 - no public way to untie them
        task.remove_done_callback(callback)


def is_unheard(task: asyncio.Task[Any]) -> bool:
    """Tell whether *task* has failed and nobody asked."""
    return bool(task._log_traceback)  # noqa: SLF001 - as Future.__del__ does


def _close(coro: Any) -> None:
    with contextlib.suppress(BaseException):  # dead code may raise anything, there is nobody to tell
        if hasattr(coro, "close"):
            coro.close()


def drop_generator(generator: AsyncGenerator[Any, Any]) -> None:
    """End *generator*, as far as it can be ended."""
    # One that is suspended in an await of its own cannot be closed, only what it awaits.
    _close(getattr(generator, "ag_await", None))
    closing = generator.aclose()
    with contextlib.suppress(BaseException):  # dead code may raise anything, there is nobody to tell
        closing.send(None)
