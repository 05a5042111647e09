"""Durable execution for Python on the RabbitMQ and the Postgres a team already runs."""

from tidewheel.sdk.app import App
from tidewheel.sdk.context import Context
from tidewheel.sdk.current_task import CurrentTask, current_task
from tidewheel.sdk.errors import (
    AlreadyResolved,
    DeterminismViolation,
    DeterminismWarning,
    ForbiddenInWorkflow,
    InvalidRequest,
    NotFound,
    Overloaded,
    RunCancelled,
    RunFailed,
    SignalRejected,
    StepFailed,
    TidewheelError,
)
from tidewheel.sdk.join_set import JoinSet
from tidewheel.sdk.promise import DurablePromise
from tidewheel.sdk.retry import Retry

__version__ = "0.1.0"

__all__ = [
    "AlreadyResolved",
    "App",
    "Context",
    "CurrentTask",
    "DeterminismViolation",
    "DeterminismWarning",
    "DurablePromise",
    "ForbiddenInWorkflow",
    "InvalidRequest",
    "JoinSet",
    "NotFound",
    "Overloaded",
    "Retry",
    "RunCancelled",
    "RunFailed",
    "SignalRejected",
    "StepFailed",
    "TidewheelError",
    "__version__",
    "current_task",
]
