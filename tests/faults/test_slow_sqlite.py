"""The embedded default, while somebody else holds its file: results are bounded by the same budget."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.faults.place import eventually, store_file
from tests.faults.till import GIVEN_UP, THRICE, WAITS, Till, steps_of, working
from tests.faults.trouble import lock_of
from tidewheel.store.sqlite.store import SqliteStore
from tidewheel.workers.write_budget import StateStoreConfig


@pytest.mark.parametrize("inline", [True, False])
async def test_a_result_that_was_not_written_in_time_fails_its_attempt(
    blank: Path, caplog: pytest.LogCaptureFixture, inline: bool
) -> None:
    """The file is held for longer than the budget: the step is executed again, and comes to one result."""
    till, file = Till(THRICE, inline=inline), store_file(blank)
    opens = partial(SqliteStore.open, file, busy_timeout_s=0.3)
    async with working(opens, till, StateStoreConfig(write_latency_budget_ms=100)) as client:
        handle = await till.begun(client)

        with lock_of(file):
            till.opened.set()
            await eventually(lambda: GIVEN_UP in caplog.text, "the end of the worker's patience")
        result = await handle.result(timeout=30)
        steps = await steps_of(handle)

    assert (result, till.attempts) == ("paid 7", [1, 2])
    assert steps == ["InvokeScheduled", "InvokeStarted", "InvokeRetrying", "InvokeStarted", "InvokeCompleted"]


async def test_a_result_waits_within_the_budget(blank: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The file is held for less: the result is written when it is free, and nothing is executed again."""
    till, file = Till(THRICE, inline=True), store_file(blank)
    opens = partial(SqliteStore.open, file, busy_timeout_s=0.3)
    async with working(opens, till, StateStoreConfig(write_latency_budget_ms=60_000)) as client:
        handle = await till.begun(client)

        with lock_of(file):
            till.opened.set()
            await eventually(lambda: WAITS in caplog.text, "the worker's word")
        result = await handle.result(timeout=30)

    assert (result, till.attempts) == ("paid 7", [1])
