"""``run signal``, ``cancel``, ``resolve``, ``reject`` and ``unpark``: one word to a run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from tidewheel.cli import logs, output, payloads
from tidewheel.cli.connecting import Link, Where, linked
from tidewheel.cli.exit_codes import ExitCode
from tidewheel.cli.failure import Failure
from tidewheel.cli.runs.words import parked_reason
from tidewheel.sdk.door import check_any_run_id
from tidewheel.sdk.ending import not_found
from tidewheel.store.append import Append, Unpark
from tidewheel.store.records import RunRecord

#: Tells the run, and returns what was done, for people.
Act: TypeAlias = Callable[[Link, str], Awaitable[str]]


def run(where: Where, run_id: str, act: Act, *, as_json: bool) -> ExitCode:
    """Do it, and say how the run stands."""
    check_any_run_id(run_id)
    with logs.of_a_command(as_json=as_json):
        return asyncio.run(_do(where, run_id, act, as_json=as_json))


async def _do(where: Where, run_id: str, act: Act, *, as_json: bool) -> ExitCode:
    async with linked(where) as link:
        done = await act(link, run_id)
        record = await _found(link, run_id)
    if as_json:
        output.emit_json({"run_id": run_id, "status": record.status})
    else:
        output.say(f"{run_id}: {done}")
    return ExitCode.OK


def signal(name: str, payload: str, request_id: str | None) -> Act:
    """Send a signal."""
    value = payloads.parse(payload, "--payload")

    async def act(link: Link, run_id: str) -> str:
        await link.client.handle(run_id).signal(name, value, request_id=request_id)
        return f"signal {name!r} sent"

    return act


def cancel(reason: str | None) -> Act:
    """Ask it to stop; one that has ended is left as it is."""

    async def act(link: Link, run_id: str) -> str:
        before = await _found(link, run_id)
        await link.client.handle(run_id).cancel(reason)
        if before.ended:
            return f"has ended already ({before.status}), nothing to cancel"
        return "was asked to stop before" if before.cancelling else "asked to stop"

    return act


def resolve(promise: str, value: str) -> Act:
    """Give a promise its value."""
    parsed = payloads.parse(value, "--value")

    async def act(link: Link, run_id: str) -> str:
        await link.client.handle(run_id).resolve(promise, parsed)
        return f"promise {promise!r} resolved"

    return act


def reject(promise: str, message: str) -> Act:
    """Let a promise fail."""

    async def act(link: Link, run_id: str) -> str:
        await link.client.handle(run_id).reject(promise, message)
        return f"promise {promise!r} rejected"

    return act


def unpark() -> Act:
    """Let a parked run go on."""

    async def act(link: Link, run_id: str) -> str:
        record = await _found(link, run_id)
        if record.ended:
            message = f"run {run_id} has ended ({record.status})"
            raise Failure.refused(message)
        if record.parked is None:
            return "is not parked, nothing to do"
        await link.connection.append(Append(run=record.ref, mark=Unpark()))
        return f"goes on; it was parked ({record.parked}): {parked_reason(record)}"

    return act


async def _found(link: Link, run_id: str) -> RunRecord:
    run = link.connection.ref(run_id)
    record = await link.store.find(run)
    if record is None:
        raise not_found(run)
    return record
