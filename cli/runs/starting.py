"""``tidewheel run start``: commits a start, and with ``--wait`` stays until the run has ended."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from tidewheel.cli import logs, output, payloads
from tidewheel.cli.connecting import Link, Where, linked, new_store
from tidewheel.cli.exit_codes import ExitCode
from tidewheel.cli.failure import Failure
from tidewheel.cli.runs import waiting
from tidewheel.sdk.handle import Handle
from tidewheel.store.records import RunRef, WorkerRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the command line asks for."""

    workflow: str
    #: As it was typed.
    input: str
    run_id: str | None
    idempotency_key: str | None
    queue: str | None
    wait: bool
    timeout_s: float | None


def run(where: Where, wanted: Wanted, *, as_json: bool) -> ExitCode:
    """Start the run, and print its id or its result."""
    if wanted.timeout_s is not None and not wanted.wait:
        message = "--timeout bounds the waiting, and nothing is waited for without --wait"
        raise Failure.usage(message, "tidewheel run start")
    waiting.check_timeout(wanted.timeout_s)
    given = payloads.arguments(wanted.input, "--input")
    begun: list[str] = []
    with logs.of_a_command(as_json=as_json):
        try:
            return asyncio.run(_start(where, wanted, given, begun, as_json=as_json))
        except KeyboardInterrupt:
            return waiting.interrupted(begun[0], as_json=as_json) if begun else ExitCode.INTERRUPTED


async def _start(
    where: Where, wanted: Wanted, given: list[Any], begun: list[str], *, as_json: bool
) -> ExitCode:
    made = new_store(where.settings())
    async with linked(where, create=True) as link:
        if made is not None:
            output.note(f"a new store was made at {made}", as_json=as_json)
        if wanted.wait:
            await link.client.listen()
        handle = await link.client.start(
            wanted.workflow,
            *given,
            run_id=wanted.run_id,
            idempotency_key=wanted.idempotency_key,
            queue=wanted.queue,
        )
        begun.append(handle.run_id)
        if handle.mismatch:
            return await _refuse(handle, wanted, as_json=as_json)
        await _warn_if_unserved(link, handle, as_json=as_json)
        if wanted.wait:
            if handle.existed and not as_json:
                output.say(_existing(handle, wanted, await handle.status()))
            return await waiting.told(link, handle, wanted.timeout_s, as_json=as_json)
        await _tell(handle, wanted, as_json=as_json)
    return ExitCode.OK


async def _tell(handle: Handle[Any], wanted: Wanted, *, as_json: bool) -> None:
    """Print the run's id, and whether it was started now."""
    if as_json:
        existed = {"existed": True} if handle.existed else {}
        output.emit_json({"run_id": handle.run_id, "status": await handle.status(), **existed})
        return
    output.emit(handle.run_id)
    if handle.existed:
        output.say(_existing(handle, wanted, await handle.status()))
    else:
        output.say(f"started; `tidewheel run watch {handle.run_id}` follows it")


def _existing(handle: Handle[Any], wanted: Wanted, status: str) -> str:
    """Say which run there was already."""
    if wanted.run_id in (None, handle.run_id):
        return f"run {handle.run_id} exists already ({status}); nothing was started"
    return f"{_whose(handle, wanted)} ({status}); nothing was started"


def _whose(handle: Handle[Any], wanted: Wanted) -> str:
    return f"--idempotency-key {wanted.idempotency_key!r} belongs to run {handle.run_id}, not {wanted.run_id}"


async def _refuse(handle: Handle[Any], wanted: Wanted, *, as_json: bool) -> ExitCode:
    if as_json:
        output.emit_json({"run_id": handle.run_id, "status": await handle.status(), "mismatch": True})
    message = f"run {handle.run_id} was started before with another workflow or input, and is left as it is"
    if wanted.run_id not in (None, handle.run_id):
        message = f"{_whose(handle, wanted)}: {message}"
    raise Failure.refused(message, "choose another --run-id or --idempotency-key")


async def _warn_if_unserved(link: Link, handle: Handle[Any], *, as_json: bool) -> None:
    """Say so where nobody will take the run: it waits, which is no error."""
    record = await link.store.find(RunRef(link.settings.namespace, handle.run_id))
    if record is None or record.ended:
        return
    now = await link.store.now()
    alive = [
        worker
        for worker in await link.store.workers()
        if worker.alive_until > now and worker.namespace == record.namespace
    ]
    problem = unserved(record.workflow, record.queue, alive)
    if problem is not None:
        output.warn(f"{problem}; the run waits until one does", as_json=as_json)


def unserved(workflow: str, queue: str, alive: list[WorkerRecord]) -> str | None:
    """Say why none of the workers will take a run of *workflow* from *queue*; None if one will."""
    if not alive:
        return "no worker is running"
    having = [worker for worker in alive if any(name == workflow for name, *_ in worker.workflows)]
    if not having:
        known = sorted({name for worker in alive for name, *_ in worker.workflows})
        return f"no running worker has the workflow {workflow!r} (they have: {', '.join(known) or 'none'})"
    if not any(queue in worker.queues for worker in having):
        queues = sorted({name for worker in having for name in worker.queues})
        return f"no worker that has {workflow!r} serves the queue {queue!r} (they serve: {', '.join(queues)})"
    return None
