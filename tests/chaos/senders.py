"""Whoever starts the runs of the bus storm and waits for what they come to, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tests.chaos.letters import fails, letter, result_of, run_id_of
from tidewheel.broker.errors import BrokerUnavailable
from tidewheel.sdk.client import Client
from tidewheel.sdk.errors import NotFound, RunFailed, TidewheelError
from tidewheel.sdk.handle import Handle
from tidewheel.store.errors import CommitUnknown, StoreUnavailable

T = TypeVar("T")

#: A run that takes longer than this, counted from its start, is stuck.
STUCK_S = 120.0
PAUSE_S = 0.05


class Senders:
    """Starts runs, numbered from 1 on; every other one by a message."""

    def __init__(self, client: Client) -> None:
        self._client = client
        #: Of runs that were started, whether or not anybody knows that they were.
        self.started: list[str] = []
        self.completed = 0
        #: What was wrong, in words, and what a sender saw meanwhile, by the name of the error.
        self.wrong: list[str] = []
        self.troubles: Counter[str] = Counter()
        #: How long each run took, from before its start to its result; and when the last one ended.
        self.took_s: list[float] = []
        self.ended_at = 0.0

    async def send(self, runs: int, *, open_max: int, allowed: Callable[[], int]) -> None:
        """Start *runs*, *open_max* at a time and not more than are *allowed* by now; wait for them."""
        turns = asyncio.Semaphore(open_max)
        async with asyncio.TaskGroup() as group:
            while len(self.started) < runs:
                await turns.acquire()
                while len(self.started) >= allowed():  # noqa: ASYNC110 - what allows more is another process
                    await asyncio.sleep(PAUSE_S)
                group.create_task(self._sent(self._next(), turns))

    async def send_steadily(self, per_s: int, seconds: float) -> None:
        """Start so many runs a second, for *seconds*, whether or not others end; wait for them."""
        turns = asyncio.Semaphore(max(1, round(per_s * STUCK_S)))
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for place in range(round(per_s * seconds)):
                await asyncio.sleep(max(0.0, place / per_s - (time.monotonic() - began)))
                await turns.acquire()
                group.create_task(self._sent(self._next(), turns))

    def _next(self) -> int:
        number = len(self.started) + 1
        self.started.append(run_id_of(number))
        return number

    async def _sent(self, number: int, turns: asyncio.Semaphore) -> None:
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
            self.ended_at = time.time()
            wanted = None if fails(number) else result_of(number)
            if result != wanted:
                self.wrong.append(f"{run_id_of(number)} came to {result}, not {wanted}")
        finally:
            turns.release()

    async def _result(self, number: int) -> int | None:
        """Return what the run came to; None if it failed."""
        run_id = run_id_of(number)
        # Every other one is started by a message: then the run is there a little later.
        start = self._client.publish_start if number % 2 == 1 else self._client.start
        handle: Handle[Any] = await self._surely(lambda: start(letter, number, run_id=run_id))
        try:
            result: int = await self._surely(handle.result)
        except RunFailed:
            return None
        return result

    async def _surely(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask until there is an answer: what is away comes back."""
        while True:
            try:
                return await ask()
            except (StoreUnavailable, BrokerUnavailable, CommitUnknown, NotFound) as problem:
                self.troubles[type(problem).__name__] += 1
                await asyncio.sleep(PAUSE_S)
