"""``tidewheel queue``: limits set, taken away, and listed with what counts in them."""

from __future__ import annotations

import asyncio
from typing import Any

from tidewheel.cli import output
from tidewheel.cli.aligned import aligned
from tidewheel.cli.connecting import Where, stored
from tidewheel.cli.exit_codes import ExitCode
from tidewheel.cli.failure import Failure
from tidewheel.cli.timeline.text import counted, plain
from tidewheel.journal.ids import check_name
from tidewheel.store.admission import OVERLOADS, PAUSE_MAX_S, Overload, QueueLimit, QueueLoad

_HEAD = ("QUEUE", "RUNNING", "QUEUED", "OVERLOAD", "PAUSE")


def set_limit(
    where: Where,
    queue: str,
    *,
    max_running: int,
    max_pending: int,
    overload: str,
    pause_s: float,
    as_json: bool,
) -> ExitCode:
    """Set the limit of a queue, and say how it stands."""
    check_name(queue, "queue")
    limit = QueueLimit(
        namespace=where.settings().namespace,
        queue=queue,
        max_running=max_running,
        max_pending=max_pending,
        overload=_overload(overload),
        pause_s=_pause(pause_s),
    )
    load = asyncio.run(_set(where, limit))
    if as_json:
        output.emit_json(as_json_value(load))
    else:
        output.say(f"queue {queue}: {load.running} of {max_running} under way, {_queued(load)} queued")
    return ExitCode.OK


async def _set(where: Where, limit: QueueLimit) -> QueueLoad:
    async with stored(where) as (store, namespace):
        await store.admission.put(limit)
        (load,) = [one for one in await store.admission.loads(namespace) if one.limit.queue == limit.queue]
        return load


def remove_limit(where: Where, queue: str, *, as_json: bool) -> ExitCode:
    """Let a queue be without a limit; one that has none is not found."""
    check_name(queue, "queue")
    if not asyncio.run(_remove(where, queue)):
        advice = "see `tidewheel queue list`"
        raise Failure(
            f"queue {queue!r} has no limit", code=ExitCode.NOT_FOUND, kind="NotFound", advice=advice
        )
    if as_json:
        output.emit_json({"queue": queue, "limited": False})
    else:
        output.say(f"queue {queue} has no limit any more; what is queued will be admitted")
    return ExitCode.OK


async def _remove(where: Where, queue: str) -> bool:
    async with stored(where) as (store, namespace):
        return await store.admission.remove(namespace, queue)


def show_list(where: Where, *, as_json: bool) -> ExitCode:
    """Print the limits of a namespace, and what counts in them."""
    loads = asyncio.run(_read(where))
    if as_json:
        output.emit_json([as_json_value(load) for load in loads])
        return ExitCode.OK
    if loads:
        for line in aligned([_HEAD, *(_row(load) for load in loads)]):
            output.emit(line)
    output.say(counted(len(loads), "queue") + (" has a limit" if len(loads) == 1 else " have a limit"))
    return ExitCode.OK


async def _read(where: Where) -> list[QueueLoad]:
    async with stored(where) as (store, namespace):
        return list(await store.admission.loads(namespace))


def as_json_value(load: QueueLoad) -> dict[str, Any]:
    """Return *load* as programs read it."""
    limit = load.limit
    return {
        "queue": limit.queue,
        "running": load.running,
        "max_running": limit.max_running,
        "pending": load.pending,
        "max_pending": limit.max_pending,
        "overload": limit.overload,
        "pause_s": limit.pause_s,
    }


def _row(load: QueueLoad) -> tuple[str, ...]:
    limit = load.limit
    running = f"{load.running} of {limit.max_running}"
    return plain(limit.queue), running, _queued(load), limit.overload, f"{limit.pause_s:g} s"


def _queued(load: QueueLoad) -> str:
    return f"{load.pending} of {load.limit.max_pending}"


def _overload(given: str) -> Overload:
    for known in OVERLOADS:
        if given == known:
            return known
    raise Failure.invalid(f"--overload {given!r} is not known", f"it is one of {', '.join(OVERLOADS)}")


def _pause(given: float) -> float:
    if not 0 < given <= PAUSE_MAX_S:
        raise Failure.invalid(
            f"--pause {given:g} is out of range", f"more than 0 and at most {PAUSE_MAX_S:g} s"
        )
    return given
