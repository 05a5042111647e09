"""``tidewheel run result``, and ``run start --wait``: stays until a run has ended, and prints its result."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from tidewheel.cli import logs, output
from tidewheel.cli.connecting import Link, Where, linked
from tidewheel.cli.exit_codes import ExitCode
from tidewheel.cli.failure import Failure
from tidewheel.cli.live_line import LiveLine
from tidewheel.cli.runs.following import follow
from tidewheel.cli.timeline import RunProgress
from tidewheel.journal.events import Error
from tidewheel.sdk.door import check_any_run_id
from tidewheel.sdk.durations import seconds
from tidewheel.sdk.errors import RunCancelled, RunFailed
from tidewheel.sdk.handle import Handle
from tidewheel.store.records import RunRef


def run(where: Where, run_id: str, timeout_s: float | None, *, as_json: bool) -> ExitCode:
    """Print the result of a run, once it has one."""
    check_any_run_id(run_id)
    check_timeout(timeout_s)
    with logs.of_a_command(as_json=as_json):
        try:
            return asyncio.run(_result(where, run_id, timeout_s, as_json=as_json))
        except KeyboardInterrupt:
            return interrupted(run_id, as_json=as_json)


async def _result(where: Where, run_id: str, timeout_s: float | None, *, as_json: bool) -> ExitCode:
    async with linked(where) as link:
        return await told(link, link.client.handle(run_id), timeout_s, as_json=as_json)


def check_timeout(timeout_s: float | None) -> None:
    """Refuse what is no length of time, before anything is done."""
    if timeout_s is not None and seconds(timeout_s, "--timeout") < 0:
        message = f"--timeout: {timeout_s:g} is less than nothing"
        raise Failure.invalid(message, "write seconds; 0 looks once and does not wait")


def interrupted(run_id: str, *, as_json: bool) -> ExitCode:
    """Say that only the waiting has ended."""
    output.warn(f"no longer waiting: run {run_id} goes on", as_json=as_json)
    return ExitCode.INTERRUPTED


async def told(link: Link, handle: Handle[Any], timeout_s: float | None, *, as_json: bool) -> ExitCode:
    """Wait for the end of the run, at most *timeout_s*, and print what it came to."""
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
