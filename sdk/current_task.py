"""``current_task()``: what a task's function may know of the step it executes."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from tidewheel.journal.errors import InvalidRequest


def _unheard(_details: Any) -> None:
    """Take a heartbeat where nobody listens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentTask:
    """The step that is being executed, seen from inside."""

    #: The run that asked for the step.
    run_id: str
    #: Which physical execution this is, from 1.
    attempt: int
    #: The same for every attempt of this step, and for no other step: pass it to whoever can
    #: refuse a repetition.
    idempotency_key: str
    #: What the previous attempt last passed to ``heartbeat``.
    last_heartbeat: Any = None
    _beat: Callable[[Any], None] = field(default=_unheard, repr=False)
    _connection: Any = field(default=None, repr=False)

    @property
    def connection(self) -> Any:
        """The database connection whose work commits with the step's result."""
        if self._connection is None:
            message = "this step has no connection: declare it with @app.task(transactional=True)"
            raise InvalidRequest(message)
        return self._connection

    def heartbeat(self, details: Any = None) -> None:
        """Say that the step is alive; *details* reach the next attempt if this one is lost."""
        self._beat(details)

    def log_fields(self) -> dict[str, Any]:
        """What a log record that is written in the step says in fields of its own."""
        _, _, step = self.idempotency_key.partition(":")
        return {"run_id": self.run_id, "step": step, "attempt": self.attempt}


class Executed(Protocol):
    """What is being executed, and can say what its body may know of it: most bodies never ask."""

    def current_task(self) -> CurrentTask:
        """Return the step, the same object each time."""

    def log_fields(self) -> dict[str, Any]:
        """Return what a log record that is written in the step says in fields of its own."""


_current: ContextVar[CurrentTask | Executed] = ContextVar("tidewheel_current_task")


def current_task() -> CurrentTask:
    """Return the step this code executes; only tasks and operations have one."""
    try:
        found = _current.get()
    except LookupError:
        message = "current_task() works inside a task only; workflow code has ctx.run_id"
        raise InvalidRequest(message) from None
    return found if isinstance(found, CurrentTask) else found.current_task()


def log_fields() -> dict[str, Any]:
    """Return what a log record that is written here says of the step this code executes, if there is one."""
    found = _current.get(None)
    return {} if found is None else found.log_fields()


def enter_task(task: CurrentTask | Executed) -> None:
    """Make *task* the current one of this context; called by whoever executes it."""
    _current.set(task)
