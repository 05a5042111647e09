"""Records the journals of ``workflows`` into ``journals/``; never overwrites one.

python -m tests.replay.record
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import pathlib
from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Any

from tests.replay.workflows import (
    Line,
    OutOfStock,
    app,
    charge,
    clean_up,
    every_verb,
    failing,
    notify,
    poller,
    reserve,
)
from tidewheel import RunCancelled, RunFailed
from tidewheel.journal import jsonform
from tidewheel.testing import Environment, Handle

JOURNALS = pathlib.Path(__file__).parent / "journals"
LINES = [Line("tea", Decimal("3.50")), Line("cup", Decimal("12.00"))]


async def ordered(env: Environment) -> Handle[Any]:
    """Everything goes well, with a retry and an empty shelf on the way."""
    calls: list[int] = []

    def flaky(lines: list[Line]) -> Decimal:
        calls.append(1)
        if len(calls) == 1:
            message = "the bank is asleep"
            raise ConnectionError(message)
        return sum((line.price for line in lines), Decimal(0))

    def picky(sku: str) -> str:
        if sku == "cup":
            raise OutOfStock(sku)
        return f"reserved {sku}"

    env.fake(charge, flaky)
    env.fake(reserve, picky)
    env.fake(notify, takes=2)
    handle = await env.client.start(every_verb, LINES, run_id="ordered")
    env.after(30, handle.signal, "approval", {"by": "the manager"})
    await handle.result()
    return handle


async def second_opinion(env: Environment) -> Handle[Any]:
    """The approval times out and a promise takes its place."""
    handle = await env.client.start(every_verb, LINES, run_id="second-opinion")
    env.after(90, handle.resolve, "second_opinion", "granted")
    await handle.result()
    return handle


async def blocked(env: Environment) -> Handle[Any]:
    """Still waiting."""
    handle = await env.client.start(every_verb, LINES, run_id="blocked")
    await env.sleep(20)
    return handle


async def cancelled(env: Environment) -> Handle[Any]:
    """Cancelled in the middle, with clean-up."""
    handle = await env.client.start(clean_up, run_id="cancelled")
    env.after(5, handle.cancel, "changed my mind")
    with contextlib.suppress(RunCancelled):
        await handle.result()
    return handle


async def continued(env: Environment) -> Handle[Any]:
    """Three segments and a signal carried over."""
    handle = await env.client.start(poller, 2, run_id="continued")
    env.after(5, handle.signal, "bonus", 40)
    assert await handle.result() == 42
    return handle


async def failed(env: Environment) -> Handle[Any]:
    """Attempts spent, then an exception of the workflow's own."""
    env.fake(notify, raises=ConnectionError("no pigeon"))
    handle = await env.client.start(failing, run_id="failed")
    with contextlib.suppress(RunFailed):
        await handle.result()
    return handle


SCENARIOS: list[Callable[[Environment], Awaitable[Handle[Any]]]] = [
    ordered, second_opinion, blocked, cancelled, continued, failed,
]  # fmt: skip


async def record() -> None:
    """Record what is not there yet."""
    JOURNALS.mkdir(exist_ok=True)
    for scenario in SCENARIOS:
        path = JOURNALS / f"{scenario.__name__}.json"
        if path.exists():
            print(f"{path.name}: kept")
            continue
        async with Environment(app) as env:
            handle = await scenario(env)
            entries = await handle.journal()
        path.write_bytes(jsonform.dumps(entries))
        print(f"{path.name}: {len(json.loads(path.read_bytes()))} events")


if __name__ == "__main__":
    asyncio.run(record())
