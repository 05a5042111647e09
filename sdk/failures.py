"""Exceptions to journaled errors and back: the same exception live and on replay."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import UNSET

from tidewheel.journal.errors import InvalidRequest
from tidewheel.journal.events import Error
from tidewheel.sdk import payload
from tidewheel.sdk.errors import StepFailed

#: Longer messages are cut: an error is for reading, its payload belongs elsewhere.
MESSAGE_MAX = 10_000

_OTHER_LOOP = (
    " (an asyncio Lock, Event, Queue or Semaphore belongs to the run that first used it: "
    "create it inside the workflow, not at module level)"
)


def error_of(problem: BaseException) -> Error:
    """Describe *problem* as a journal keeps it."""
    if isinstance(problem, StepFailed):
        error = problem.error
        return Error(
            type=error.type,
            message=f"{problem.step}: {error.message}"[:MESSAGE_MAX],
            retryable=error.retryable,
            attempts=error.attempts,
            details=error.details,
        )
    message = _text(problem)
    if isinstance(problem, RuntimeError) and "different event loop" in message:
        message += _OTHER_LOOP
    if isinstance(problem, BaseExceptionGroup):
        first = error_of(problem.exceptions[0])
        message += f", the first being {first.type}: {first.message}"
    retryable = getattr(problem, "retryable", not isinstance(problem, InvalidRequest))
    return Error(
        type=type(problem).__name__,
        message=message[:MESSAGE_MAX],
        retryable=bool(retryable),
        details=_details(problem),
    )


def exception_for(step: str, error: Error, raises: Iterable[type[Exception]]) -> BaseException:
    """Return what the code gets for *error*: the declared class as itself, else ``StepFailed``."""
    for kind in raises:
        if kind.__name__ == error.type:
            return _rebuild(kind, error)
    return StepFailed(step, error)


def _rebuild(kind: type[Exception], error: Error) -> Exception:
    details = error.details
    given = details.get("args") if isinstance(details, dict) else None
    for arguments in ([given] if isinstance(given, list) else []) + [[error.message], []]:
        try:
            return kind(*arguments)
        except Exception:  # noqa: BLE001, S112 - a class that cannot take these arguments gets the next ones
            continue
    rebuilt = kind.__new__(kind)
    rebuilt.args = (error.message,)
    return rebuilt


def _details(problem: BaseException) -> Any:
    if isinstance(problem, BaseExceptionGroup):
        return {"errors": [_brief(inner) for inner in problem.exceptions[:100]]}
    if not problem.args or (len(problem.args) == 1 and isinstance(problem.args[0], str)):
        return UNSET
    try:
        return {"args": payload.encode(list(problem.args), where="args")}
    except InvalidRequest:
        return UNSET


def _brief(problem: BaseException) -> dict[str, str]:
    error = error_of(problem)
    return {"type": error.type, "message": error.message}


def _text(problem: BaseException) -> str:
    try:
        text = str(problem)
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide the error itself
        text = f"<{type(problem).__name__} whose message cannot be shown>"
    return text.encode("utf-8", "replace").decode("utf-8")
