"""Whether this worker is the one to go on with a run, and whether its code is the right one."""

from __future__ import annotations

from collections.abc import Sequence

from tidewheel.broker.errors import BrokerUnavailable, Unroutable
from tidewheel.broker.protocol import Delivery
from tidewheel.broker.topology import sticky_queue
from tidewheel.broker.work_items import RunHint, to_queue
from tidewheel.sdk.app import App
from tidewheel.store.append import Park
from tidewheel.store.protocol import Loaded
from tidewheel.store.records import RunRecord, StepRecord
from tidewheel.workers.services import Services


def misfit(app: App, run: RunRecord) -> Park | None:
    """Return why *app* cannot go on with *run*, if it cannot: the run waits for a worker that can."""
    definition = app.workflows.get(run.workflow)
    if definition is None:
        known = ", ".join(sorted(app.workflows)) or "none"
        reason = (
            f"app {app.name!r} has no workflow {run.workflow!r}; it has: {known}. "
            "Start a worker that has it, or serve it from a queue of its own"
        )
        return Park(kind="unknown_workflow", reason=reason)
    if run.version and run.version != definition.version:
        reason = (
            f"the run needs version {run.version!r} of {run.workflow!r}; "
            f"this worker has {definition.version or 'an unlabelled one'!r}"
        )
        return Park(kind="needs_version", reason=reason)
    if definition.pin == "digest" and run.digest and run.digest != definition.digest:
        reason = f"the run needs the code {run.digest[:12]} of {run.workflow!r}; this worker has other code"
        return Park(kind="needs_version", reason=reason)
    return None


def lost_its_owner(step: StepRecord, loaded: Loaded, held: Sequence[Delivery]) -> bool:
    """Tell whether whoever executed *step* is gone.

    So it is where the very delivery on which it took the step has come back.
    """
    if step.owner is None:
        return False
    came_back = any(
        delivery.earlier_deliveries > 0 and delivery.message.message_id == loaded.run.owner_message
        for delivery in held
    )
    return came_back or step.owner not in loaded.alive


def live_owner(loaded: Loaded, worker_id: str, held: Sequence[Delivery]) -> str | None:
    """Return the other worker that is executing steps of the run, if there is one."""
    elsewhere = None
    for step in loaded.steps:
        if step.dispatch != "inline" or step.abandoned or step.owner is None:
            continue
        if step.owner == worker_id:
            return None  # we execute a part of it ourselves: two owners must not send it to and fro
        if elsewhere is None and not lost_its_owner(step, loaded, held):
            elsewhere = step.owner
    return elsewhere


async def forward(services: Services, run: RunRecord, worker_id: str) -> bool:
    """Pass the hint on to the worker that has the run; False if it cannot be reached."""
    hint = RunHint(namespace=run.namespace, run_id=run.run_id)
    try:
        await services.broker.publish([to_queue(hint, sticky_queue(worker_id))])
    except (Unroutable, BrokerUnavailable):
        return False
    return True
