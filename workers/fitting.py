"""Whether this worker is the one to go on with a run, and whether its code is the right one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import UNSET
from msgspec.structs import replace

from tidewheel.broker.errors import BrokerUnavailable, Unroutable
from tidewheel.broker.protocol import Delivery
from tidewheel.broker.topology import sticky_queue
from tidewheel.broker.work_items import RunHint, to_queue
from tidewheel.journal import events as ev
from tidewheel.sdk.app import App
from tidewheel.sdk.definitions import WorkflowDefinition
from tidewheel.sdk.digest import DIGEST_SHOWN
from tidewheel.store.append import Park
from tidewheel.store.protocol import Loaded
from tidewheel.store.records import RunRecord, RunRef, StepRecord, WorkerRecord
from tidewheel.workers.lifeline import is_gone
from tidewheel.workers.services import Services

#: Workers that a hint is offered to.
PASSED_ON_MAX = 3


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
        reason = (
            f"the run needs the code {run.digest[:DIGEST_SHOWN]} of {run.workflow!r}; "
            f"this worker has {definition.digest[:DIGEST_SHOWN]}"
        )
        return Park(kind="needs_version", reason=reason)
    return None


def sketched(services: Services, ref: RunRef, sketch: bytes) -> Loaded | None:
    """Return the run as the hint for its start has it, if it is for this worker; else it is loaded."""
    loaded = services.store.sketched(sketch)
    if loaded is None or loaded.run.ref != ref or loaded.run.queue not in services.config.queues:
        return None
    return loaded if misfit(services.app, loaded.run) is None else None


async def pass_on(services: Services, loaded: Loaded) -> bool:
    """Pass the hint on to a worker that has the code which the run needs; False if there is none."""
    run = loaded.run
    others = [
        worker.worker_id
        for worker in await services.store.workers()
        if worker.alive_until > loaded.now and not is_gone(worker) and _fits(services.app, run, worker)
    ]
    if not others:
        return False
    first = int(services.chance.random() * len(others))
    for worker_id in (others[first:] + others[:first])[:PASSED_ON_MAX]:
        if await forward(services, run, worker_id):
            return True
    return False


def _fits(app: App, run: RunRecord, worker: WorkerRecord) -> bool:
    """Tell whether *worker* has what this one lacks: then it does not pass the run on for the same reason."""
    if worker.namespace != run.namespace or run.queue not in worker.queues:
        return False
    here = app.workflows.get(run.workflow)
    by_digest = here is not None and here.pin == "digest" and bool(run.digest)
    return any(
        name == run.workflow
        and (not run.version or version == run.version)
        and (not by_digest or digest == run.digest)
        for name, version, digest in worker.workflows
    )


def pinned(events: Sequence[ev.Event], definition: WorkflowDefinition, *, is_first: bool) -> list[ev.Event]:
    """Return *events* of an activation, saying by which code a run goes on whose start does not say it.

    Its first wait does, and the start of each further segment.
    """
    return [_stamped(event, definition, is_first=is_first) for event in events]


def _stamped(event: ev.Event, definition: WorkflowDefinition, *, is_first: bool) -> ev.Event:
    version, digest = definition.version, definition.digest
    if isinstance(event, ev.ExecutionStarted) and not event.component_digest:
        return replace(event, version=version, component_digest=digest)
    if isinstance(event, ev.ExecutionAwaiting) and is_first:
        return replace(event, version=version or UNSET, component_digest=digest)
    return event


def lost_its_owner(step: StepRecord, loaded: Loaded, held: Iterable[Delivery]) -> bool:
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


def live_owner(loaded: Loaded, worker_id: str, held: Iterable[Delivery]) -> str | None:
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
