"""The world outside: starts runs, pays for them, and waits for their results, whatever happens meanwhile.

A customer tries again what was not possible, under the same names, and gives up when its patience ends.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tests.chaos.orders import PAID, payment_of, result_of, run_id_of, workflow_of
from tidewheel.broker.errors import BrokerUnavailable
from tidewheel.sdk.client import Client
from tidewheel.sdk.errors import NotFound, TidewheelError
from tidewheel.sdk.handle import Handle
from tidewheel.store.errors import CommitUnknown, StoreUnavailable

T = TypeVar("T")

#: A run that takes longer than this, counted from its start, is stuck.
STUCK_S = 120.0
PAUSE_S = 0.05


class Customers:
    """Keeps *open_max* runs under way, for as long as more are wanted."""

    def __init__(self, client: Client, *, open_max: int, seed: int) -> None:
        self._client = client
        self._open_max = open_max
        self._chance = random.Random(seed)
        #: Of runs that were started, whether or not anybody knows that they were.
        self.started: list[str] = []
        self.completed = 0
        #: What was wrong, in words, and what a customer saw meanwhile, by the name of the error.
        self.wrong: list[str] = []
        self.troubles: Counter[str] = Counter()
        #: How long each run took, from before its start to its result.
        self.took_s: list[float] = []

    async def shop(self, is_enough: Callable[[], bool]) -> None:
        """Start runs until *is_enough* says so, then wait for those that are under way."""
        turns = asyncio.Semaphore(self._open_max)
        async with asyncio.TaskGroup() as group:
            while True:
                await turns.acquire()
                if is_enough():
                    return
                number = len(self.started) + 1
                self.started.append(run_id_of(number))
                group.create_task(self._served(number, turns))

    async def _served(self, number: int, turns: asyncio.Semaphore) -> None:
        began = time.monotonic()
        try:
            async with asyncio.timeout(STUCK_S):
                result = await self._result(number)
        except TimeoutError:
            self.wrong.append(f"{run_id_of(number)} did not end within {STUCK_S:g} s")
        except TidewheelError as problem:
            self.wrong.append(f"{run_id_of(number)} ended with {problem!r}")
        else:
            self.completed += 1
            self.took_s.append(time.monotonic() - began)
            if result != result_of(run_id_of(number)):
                self.wrong.append(f"{run_id_of(number)} came to {result}")
        finally:
            turns.release()

    async def _result(self, number: int) -> Any:
        workflow, run_id = workflow_of(number), run_id_of(number)
        # Every other one is started by a message: then the run is there a little later.
        is_published = number % 2 == 1
        start = self._client.publish_start if is_published else self._client.start
        handle: Handle[Any] = await self._surely(lambda: start(workflow, number, run_id=run_id))
        # Some pay before the run asks for it, some while it waits.
        await asyncio.sleep(self._chance.choice([0.0, 0.05]))
        await self._surely(
            lambda: handle.signal(PAID, payment_of(number), request_id="paid"),
            NotFound if is_published else StoreUnavailable,
        )
        return await self._surely(handle.result)

    async def _surely(
        self, ask: Callable[[], Awaitable[T]], also: type[TidewheelError] = StoreUnavailable
    ) -> T:
        """Ask until there is an answer: what is away comes back, and what is not there *also*."""
        while True:
            try:
                return await ask()
            except (StoreUnavailable, BrokerUnavailable, CommitUnknown, also) as problem:
                if not isinstance(problem, NotFound):
                    self.troubles[type(problem).__name__] += 1
                await asyncio.sleep(PAUSE_S)
