"""Durable execution for Python on the RabbitMQ and the Postgres a team already runs."""

from tidewheel.journal.public import PublicEvent
from tidewheel.journal.run_request import RunRequest
from tidewheel.sdk.app import App
from tidewheel.sdk.client import Client
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
from tidewheel.sdk.handle import Handle
from tidewheel.sdk.join_set import JoinSet
from tidewheel.sdk.promise import DurablePromise
from tidewheel.sdk.retry import Retry
from tidewheel.sdk.sync_client import SyncClient, SyncHandle

__version__ = "0.3.0"

__all__ = [
    "AlreadyResolved",
    "App",
    "Client",
    "Context",
    "CurrentTask",
    "DeterminismViolation",
    "DeterminismWarning",
    "DurablePromise",
    "ForbiddenInWorkflow",
    "Handle",
    "InvalidRequest",
    "JoinSet",
    "NotFound",
    "Overloaded",
    "PublicEvent",
    "Retry",
    "RunCancelled",
    "RunFailed",
    "RunRequest",
    "SignalRejected",
    "StepFailed",
    "SyncClient",
    "SyncHandle",
    "TidewheelError",
    "__version__",
    "current_task",
]
