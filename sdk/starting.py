"""A start request, checked: pure, so that every door for starts (client, commands, HTTP) has the same.

By its function a workflow brings its version, digest and queue, and the types its arguments must have.
By its name nothing is known of it but the name: the worker that has it checks the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tidewheel.journal.ids import check_name
from tidewheel.sdk import payload
from tidewheel.sdk.definitions import WorkflowDefinition, workflow_definition
from tidewheel.sdk.door import check_key
from tidewheel.sdk.limits import Limits
from tidewheel.store.append import Start

#: The queue of runs that name none.
DEFAULT_QUEUE = "default"


def start_of(
    workflow: str | Callable[..., Any],
    args: Sequence[Any],
    *,
    idempotency_key: str | None,
    queue: str | None,
    limits: Limits,
) -> tuple[Start, Any]:
    """Return the start that is asked for and the type of its result, or refuse it with ``InvalidRequest``."""
    if idempotency_key is not None:
        check_key(idempotency_key, "idempotency_key")
    if queue is not None:
        check_name(queue, "queue")
    if isinstance(workflow, str):
        returns: Any = Any
        start = _named(workflow, args, queue, idempotency_key)
    else:
        definition = workflow_definition(workflow)
        returns = definition.hints.returns
        start = _defined(definition, args, queue, idempotency_key)
    limits.check_payload(start.input, f"the input of {start.workflow}")
    return start, returns


def _named(name: str, args: Sequence[Any], queue: str | None, key: str | None) -> Start:
    check_name(name, "workflow")
    given = [payload.encode(arg, where=f"input[{place}]") for place, arg in enumerate(args)]
    return Start(workflow=name, queue=queue or DEFAULT_QUEUE, input=given, idempotency_key=key)


def _defined(
    definition: WorkflowDefinition, args: Sequence[Any], queue: str | None, key: str | None
) -> Start:
    given = payload.encode_args(definition.hints, args)
    # What cannot be read back as the declared types would fail the run at its first activation.
    payload.decode_args(definition.hints, given)
    return Start(
        workflow=definition.name,
        version=definition.version,
        digest=definition.digest,
        queue=queue or definition.queue or DEFAULT_QUEUE,
        input=given,
        idempotency_key=key,
    )
