"""A store that takes its time: what waits for it, what does not, and what becomes of results."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from tests.unit.workers.house import House
from tidewheel import App, Context, Retry, StepFailed, current_task
from tidewheel.store.append import Append, Appended, Completed, Started
from tidewheel.store.errors import CommitUnknown, StoreUnavailable
from tidewheel.workers.write_budget import StateStoreConfig

MINUTE = 60.0
NONE = StateStoreConfig(fail_open_for_event_class=())


class SlowStore:
    """Takes *takes_s* over appends that *concerns* tells of, as often as *times*, and then does *ends*."""

    def __init__(
        self,
        house: House,
        monkeypatch: pytest.MonkeyPatch,
        concerns: Callable[[Append], bool],
        *,
        takes_s: float,
        times: int = 1,
        ends: str = "writes",
    ) -> None:
        self._append = house.store.append
        self._concerns = concerns
        self._takes_s = takes_s
        self._ends = ends
        self.left = times
        monkeypatch.setattr(house.store, "append", self.append)

    async def append(self, batch: Sequence[Append]) -> list[Appended]:
        """Write, or not."""
        if not self.left or not any(self._concerns(one) for one in batch):
            return await self._append(batch)
        self.left -= 1
        answers = await self._append(batch) if self._ends == "writes and loses the reply" else []
        await asyncio.sleep(self._takes_s)
        match self._ends:
            case "writes":
                return await self._append(batch)
            case "refuses":
                raise StoreUnavailable("it is locked; nothing was written")
            case _:
                raise CommitUnknown(f"no answer; {len(answers)} are written")


def completes(append: Append) -> bool:
    """Tell whether *append* has a result."""
    return any(isinstance(fact, Completed) for fact in append.facts)


def starts(append: Append) -> bool:
    """Tell whether *append* has a start."""
    return any(isinstance(fact, Started) for fact in append.facts)


class Till:
    """An app with one step, and the attempts that were executed."""

    def __init__(self, retry: Retry | None = None, *, inline: bool = True, lasts_s: float = 0.0) -> None:
        self.app = App("till")
        self.attempts: list[int] = []
        self.began: list[float] = []

        @self.app.task(retry=retry or Retry(max_attempts=3), inline=inline)
        async def pay() -> int:
            self.began.append(asyncio.get_running_loop().time())
            self.attempts.append(current_task().attempt)
            await asyncio.sleep(lasts_s)
            return 7

        @self.app.workflow
        async def checkout(ctx: Context) -> str:
            try:
                return f"paid {await ctx.invoke(pay)}"
            except StepFailed as problem:
                return f"{problem.error_type} after {problem.attempts}"

        self.checkout = checkout


def _told(house: House, run_id: str) -> list[str]:
    """The events of the steps of a run, as the journal has them."""
    names = [type(event).__name__ for event in house.events(run_id)]
    return [name for name in names if name.startswith("Invoke")]


# Starts


async def test_a_body_does_not_wait_for_its_start(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it comes to is written after its start, in one transaction, and so the event bus tells it."""
    till = Till(lasts_s=2.0)
    await house.worker(till.app)
    SlowStore(house, monkeypatch, starts, takes_s=10.0)
    handle = await (await house.client()).start(till.checkout)
    result = await handle.result(timeout=MINUTE)

    assert (result, till.attempts) == ("paid 7", [1])
    assert till.began == pytest.approx([0.0], abs=0.1)
    assert _told(house, handle.run_id) == ["InvokeScheduled", "InvokeStarted", "InvokeCompleted"]
    assert [event.event_type for event in await handle.events()] == [
        "RunStarted", "StepStarted", "StepCompleted", "RunCompleted",
    ]  # fmt: skip


async def test_a_start_that_is_never_written_by_itself_comes_with_the_result(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store refuses it for as long as the body goes on."""
    till = Till(lasts_s=8.0)
    await house.worker(till.app)
    slow = SlowStore(house, monkeypatch, starts, takes_s=4.0, times=2, ends="refuses")
    handle = await (await house.client()).start(till.checkout)
    result = await handle.result(timeout=MINUTE)

    assert (result, till.attempts, slow.left) == ("paid 7", [1], 0)
    assert _told(house, handle.run_id) == ["InvokeScheduled", "InvokeStarted", "InvokeCompleted"]


async def test_a_body_waits_for_its_start_where_nothing_may_fail_open(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the store takes over it; and its attempt is counted before it begins."""
    till = Till()
    await house.worker(till.app, state_store=NONE)
    SlowStore(house, monkeypatch, starts, takes_s=10.0)
    handle = await (await house.client()).start(till.checkout)
    result = await handle.result(timeout=MINUTE)

    assert (result, till.attempts) == ("paid 7", [1])
    assert till.began == pytest.approx([10.0], abs=0.5)
    assert _told(house, handle.run_id) == ["InvokeScheduled", "InvokeStarted", "InvokeCompleted"]


async def test_closures_and_failures_go_on_where_nothing_may_fail_open(house: House) -> None:
    """Every attempt of every kind of step is begun by its start."""
    app, executed = App("strict"), list[str]()

    @app.task(retry=Retry(max_attempts=3, initial=1.0, jitter=0.0))
    async def flaky() -> int:
        executed.append(f"flaky {current_task().attempt}")
        if current_task().attempt < 3:
            raise ConnectionError("not yet")
        return 1

    async def closure() -> int:
        executed.append("closure")
        return 2

    @app.workflow
    async def both(ctx: Context) -> list[int]:
        first, second = await asyncio.gather(ctx.invoke(flaky), ctx.run("two", closure))
        return [first, second]

    await house.worker(app, state_store=NONE)
    handle = await (await house.client()).start(both)

    assert await handle.result(timeout=MINUTE) == [1, 2]
    assert sorted(executed) == ["closure", "flaky 1", "flaky 2", "flaky 3"]


async def test_a_claim_is_waited_for_whatever_may_fail_open(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It decides who has the step: another worker may have the same message."""
    till = Till(inline=False)
    await house.worker(till.app)
    SlowStore(house, monkeypatch, starts, takes_s=10.0)
    handle = await (await house.client()).start(till.checkout)
    result = await handle.result(timeout=MINUTE)

    assert (result, till.attempts) == ("paid 7", [1])
    assert till.began == pytest.approx([10.0], abs=0.5)


# Results


@pytest.mark.parametrize("inline", [True, False])
async def test_a_result_that_takes_long_and_is_written_counts(
    house: House, monkeypatch: pytest.MonkeyPatch, inline: bool
) -> None:
    """The budget is no reason to execute a step again whose result is there."""
    till = Till(inline=inline)
    await house.worker(till.app)
    SlowStore(house, monkeypatch, completes, takes_s=10.0)
    handle = await (await house.client()).start(till.checkout)

    assert await handle.result(timeout=MINUTE) == "paid 7"
    assert till.attempts == [1]
    assert _told(house, handle.run_id) == ["InvokeScheduled", "InvokeStarted", "InvokeCompleted"]


@pytest.mark.parametrize("replies_lost", [1, 20])
@pytest.mark.parametrize("inline", [True, False])
async def test_a_result_is_found_that_was_written_though_its_reply_was_lost(
    house: House, monkeypatch: pytest.MonkeyPatch, inline: bool, replies_lost: int
) -> None:
    """Also where nobody can say so until the attempt is given up: its failure is refused by the store."""
    till = Till(inline=inline)
    await house.worker(till.app)
    await house.keeper()  # with the reply, the hint for the run is lost
    slow = SlowStore(
        house,
        monkeypatch,
        completes,
        takes_s=4.0,
        times=replies_lost,
        ends="writes and loses the reply",
    )
    handle = await (await house.client()).start(till.checkout)

    assert await handle.result(timeout=10 * MINUTE) == "paid 7"
    await house.until(lambda: not slow.left or replies_lost > 1)
    await asyncio.sleep(MINUTE)
    assert till.attempts == [1]
    assert _told(house, handle.run_id) == ["InvokeScheduled", "InvokeStarted", "InvokeCompleted"]


@pytest.mark.parametrize(("ends", "times"), [("refuses", 1), ("refuses", 2), ("cannot say", 7)])
@pytest.mark.parametrize("inline", [True, False])
async def test_a_result_over_the_budget_that_was_not_written_fails_its_attempt(
    house: House, monkeypatch: pytest.MonkeyPatch, inline: bool, ends: str, times: int
) -> None:
    """It is executed again, and the journal says why; several short tries count together."""
    till = Till(inline=inline)
    await house.worker(till.app)
    takes_s = 4.0 if times != 2 else 2.0
    slow = SlowStore(house, monkeypatch, completes, takes_s=takes_s, times=times, ends=ends)
    handle = await (await house.client()).start(till.checkout)

    assert await handle.result(timeout=10 * MINUTE) == "paid 7"
    assert (till.attempts, slow.left) == ([1, 2], 0)
    assert _told(house, handle.run_id) == [
        "InvokeScheduled", "InvokeStarted", "InvokeRetrying", "InvokeStarted", "InvokeCompleted",
    ]  # fmt: skip
    (retrying,) = [event for event in house.events(handle.run_id) if type(event).__name__ == "InvokeRetrying"]
    assert getattr(retrying, "error").type == "WriteBudgetExceeded"  # noqa: B009 - one of its fields


@pytest.mark.parametrize("inline", [True, False])
async def test_a_step_that_may_be_executed_once_fails_with_its_write(
    house: House, monkeypatch: pytest.MonkeyPatch, inline: bool
) -> None:
    """The workflow gets the error to handle."""
    till = Till(Retry(max_attempts=1), inline=inline)
    await house.worker(till.app)
    SlowStore(house, monkeypatch, completes, takes_s=4.0, ends="refuses")
    handle = await (await house.client()).start(till.checkout)

    assert await handle.result(timeout=MINUTE) == "WriteBudgetExceeded after 1"
    assert till.attempts == [1]


@pytest.mark.parametrize("ends", ["refuses", "cannot say"])
@pytest.mark.parametrize("inline", [True, False])
async def test_a_result_waits_for_a_store_that_is_away(
    house: House, monkeypatch: pytest.MonkeyPatch, inline: bool, ends: str
) -> None:
    """It answers at once, so it takes no time: nothing is executed again, however long it is away."""
    till = Till(Retry(max_attempts=1), inline=inline)
    await house.worker(till.app)
    slow = SlowStore(house, monkeypatch, completes, takes_s=0.001, times=50, ends=ends)
    handle = await (await house.client()).start(till.checkout)

    assert await handle.result(timeout=20 * MINUTE) == "paid 7"
    assert (till.attempts, slow.left) == ([1], 0)


async def test_a_larger_budget_lets_results_wait_for_longer(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store takes ten seconds over it, and a minute is allowed."""
    till = Till(Retry(max_attempts=1))
    await house.worker(till.app, state_store=StateStoreConfig(write_latency_budget_ms=60_000))
    SlowStore(house, monkeypatch, completes, takes_s=10.0, ends="refuses")
    handle = await (await house.client()).start(till.checkout)

    assert await handle.result(timeout=10 * MINUTE) == "paid 7"
    assert till.attempts == [1]


async def test_a_closure_without_a_policy_is_executed_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after the loss of its worker, though its own failures are not retried."""
    app, executed = App("closures"), list[int]()

    async def quote() -> int:
        executed.append(current_task().attempt)
        return 42

    @app.workflow
    async def asks(ctx: Context) -> int:
        return await ctx.run("quote", quote)

    await house.worker(app)
    SlowStore(house, monkeypatch, completes, takes_s=4.0, ends="refuses")
    handle = await (await house.client()).start(asks)

    assert await handle.result(timeout=MINUTE) == 42
    assert executed == [1, 2]
