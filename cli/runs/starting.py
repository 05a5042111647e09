"""``tidewheel run start``: commits a start, and with ``--wait`` stays until the run has ended."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from tidewheel.cli import logs, output, payloads
from tidewheel.cli.connecting import Link, Where, linked
from tidewheel.cli.exit_codes import ExitCode
from tidewheel.cli.failure import Failure
from tidewheel.cli.live_line import LiveLine
from tidewheel.cli.runs.following import follow
from tidewheel.cli.timeline import RunProgress
from tidewheel.journal.events import Error
from tidewheel.sdk.errors import RunCancelled, RunFailed
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
    given = payloads.arguments(wanted.input, "--input")
    begun: list[str] = []
    with logs.of_a_command(as_json=as_json):
        try:
            return asyncio.run(_start(where, wanted, given, begun, as_json=as_json))
        except KeyboardInterrupt:
            if begun:
                output.warn(f"no longer waiting: run {begun[0]} goes on", as_json=as_json)
            return ExitCode.INTERRUPTED


async def _start(
    where: Where, wanted: Wanted, given: list[Any], begun: list[str], *, as_json: bool
) -> ExitCode:
    async with linked(where, create=True) as link:
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
            return await _refuse(handle, as_json=as_json)
        await _warn_if_unserved(link, handle, as_json=as_json)
        if wanted.wait:
            return await _wait(link, handle, wanted.timeout_s, as_json=as_json)
        if as_json:
            output.emit_json({"run_id": handle.run_id, "status": await handle.status()})
        else:
            output.emit(handle.run_id)
            output.say(f"started; `tidewheel run watch {handle.run_id}` follows it")
    return ExitCode.OK


async def _refuse(handle: Handle[Any], *, as_json: bool) -> ExitCode:
    if as_json:
        output.emit_json({"run_id": handle.run_id, "status": await handle.status(), "mismatch": True})
    message = f"run {handle.run_id} was started before with another workflow or input, and is left as it is"
    raise Failure.refused(message, "choose another --run-id or --idempotency-key")


async def _warn_if_unserved(link: Link, handle: Handle[Any], *, as_json: bool) -> None:
    """Say so where nobody will take the run: it waits, which is no error."""
    record = await link.store.find(RunRef(link.settings.namespace, handle.run_id))
    if record is None or record.ended:
        return
    now = await link.store.now()
    alive = [worker for worker in await link.store.workers() if worker.alive_until > now]
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


async def _wait(link: Link, handle: Handle[Any], timeout_s: float | None, *, as_json: bool) -> ExitCode:
    error: Error | None = None
    said: dict[str, Any] = {"run_id": handle.run_id}
    try:
        async with _progress_shown(link, handle, as_json=as_json):
            said |= {"status": "COMPLETED", "result": await handle.result(timeout_s)}
    except RunFailed as problem:
        error = problem.error
        said["status"] = "FAILED"
    except RunCancelled as problem:
        error = Error(type="RunCancelled", message=problem.reason or "")
        said["status"] = "CANCELLED"
    except TimeoutError as problem:
        return await _out_of_time(handle, problem, as_json=as_json)
    if error is not None:
        said["error"] = output.plain(error)
    if as_json:
        output.emit_json(said)
    elif error is None:
        output.emit_json(said["result"])
    else:
        because = ": ".join(part for part in (error.type, error.message) if part)
        output.say(f"run {handle.run_id} {said['status'].lower()}: {because}")
        output.say(f"  see `tidewheel run show {handle.run_id}`")
    return ExitCode.OK if error is None else ExitCode.FINDING


async def _out_of_time(handle: Handle[Any], problem: TimeoutError, *, as_json: bool) -> ExitCode:
    if as_json:
        output.emit_json({"run_id": handle.run_id, "status": await handle.status()})
    output.warn(f"{problem}; it goes on", as_json=as_json)
    return ExitCode.FINDING


@contextlib.asynccontextmanager
async def _progress_shown(link: Link, handle: Handle[Any], *, as_json: bool) -> AsyncIterator[None]:
    """Show how the run stands while the block lasts, where somebody looks."""
    with LiveLine(wanted=not as_json) as line:
        if not line.is_shown:
            yield
            return
        showing = asyncio.create_task(_show_progress(link, handle.run_id, line))
        try:
            yield
        finally:
            showing.cancel()
            await asyncio.gather(showing, return_exceptions=True)


async def _show_progress(link: Link, run_id: str, line: LiveLine) -> None:
    progress = RunProgress(run_id)
    async with contextlib.aclosing(follow(link.store, RunRef(link.settings.namespace, run_id))) as growth:
        async for entries in growth:
            for entry in entries:
                progress.observe(entry)
            line.show(progress.line(await link.store.now()))
