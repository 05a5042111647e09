"""What Tidewheel raises, grouped by what the caller should do about it.

* Fix the call: ``InvalidRequest``, ``NotFound``.
* Decide in the workflow: ``StepFailed``.
* Read the outcome of a run: ``RunFailed``, ``RunCancelled``.
* Try again later: ``Overloaded``.
* Fix the code or the deploy: ``DeterminismViolation``.
"""

from __future__ import annotations

from msgspec import UNSET

from tidewheel.journal.errors import InvalidRequest, TidewheelError
from tidewheel.journal.events import Error
from tidewheel.replay.guards import ForbiddenInWorkflow
from tidewheel.replay.violation import Violation

__all__ = [
    "AlreadyResolved",
    "DeterminismViolation",
    "DeterminismWarning",
    "ForbiddenInWorkflow",
    "InvalidRequest",
    "NotFound",
    "Overloaded",
    "RunCancelled",
    "RunFailed",
    "SignalRejected",
    "StepFailed",
    "TidewheelError",
]


class DeterminismWarning(UserWarning):
    """A workflow's source does something that replay cannot repeat."""


class DeterminismViolation(TidewheelError):
    """The code asked for something else than its journal has. Retrying cannot help."""

    def __init__(self, violation: Violation) -> None:
        super().__init__(violation.message)
        self.violation = violation


class StepFailed(TidewheelError):
    """A step's attempts are spent; the workflow decides what that means."""

    def __init__(self, step: str, error: Error) -> None:
        super().__init__(
            f"{step}: {error.type}: {error.message}" if error.message else f"{step}: {error.type}"
        )
        self.step = step
        self.error = error

    @property
    def error_type(self) -> str:
        """The class name of what went wrong."""
        return self.error.type

    @property
    def message(self) -> str:
        """What went wrong, in its own words."""
        return self.error.message

    @property
    def retryable(self) -> bool:
        """Whether another attempt could have helped."""
        return self.error.retryable

    @property
    def attempts(self) -> int:
        """How often it was tried."""
        return 1 if self.error.attempts is UNSET else self.error.attempts


class RunFailed(TidewheelError):
    """The run ended with an error."""

    def __init__(self, run_id: str, error: Error) -> None:
        super().__init__(f"{run_id}: {error.type}: {error.message}")
        self.run_id = run_id
        self.error = error


class RunCancelled(TidewheelError):
    """The run was cancelled."""

    def __init__(self, run_id: str, reason: str | None) -> None:
        super().__init__(f"{run_id} was cancelled" + (f": {reason}" if reason else ""))
        self.run_id = run_id
        self.reason = reason


class SignalRejected(TidewheelError):
    """The run cannot take the signal: it has ended, or somebody decided against it."""


class AlreadyResolved(TidewheelError):
    """The promise was resolved before."""


class NotFound(TidewheelError):
    """There is no such run, workflow, task or promise."""


class Overloaded(TidewheelError):
    """There is too much to do right now; try again after ``retry_after`` seconds."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after
