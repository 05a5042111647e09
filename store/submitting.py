"""Appends by callback: what a store is given one by one, and what several of them come to together.

A caller is told by a call, not by a future: thousands of appends a second are answered, and each future would
cost a turn of the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from tidewheel.store.append import Append, Appended
from tidewheel.store.errors import CommitUnknown, StoreUnavailable
from tidewheel.store.protocol import Answered

logger = logging.getLogger("tidewheel.store")


def answer_safely(answered: Answered, answer: Appended | Exception) -> None:
    """Tell a caller; what it does wrong then is its own matter, and keeps nobody else from being told."""
    try:
        answered(answer)
    except Exception:
        logger.exception("whoever waited for an append failed when it was told")


class Batch:
    """Appends of one caller, who waits for all the answers; *shown* names the store."""

    def __init__(self, shown: str) -> None:
        self._shown = shown
        self._left = 0
        self._answers: dict[int, Appended] = {}
        self._problems: list[Exception] = []
        self._done: asyncio.Future[list[Appended]] = asyncio.get_running_loop().create_future()

    async def submit_to(
        self, submit: Callable[[Append, Answered], None], batch: Sequence[Append]
    ) -> list[Appended]:
        """Give *submit* all of *batch*, and return the answers in its order."""
        self._left = len(batch)
        for place, request in enumerate(batch):
            submit(request, partial(self._answered, place))
        return await self._done

    def _answered(self, place: int, answer: Appended | Exception) -> None:
        if isinstance(answer, Exception):
            self._problems.append(answer)
        else:
            self._answers[place] = answer
        self._left -= 1
        if self._left or self._done.done():
            return
        if self._problems:
            self._done.set_exception(self._problem())
        else:
            self._done.set_result([self._answers[number] for number in range(len(self._answers))])

    def _problem(self) -> Exception:
        """Return the problem that asks most of the caller. Nothing was written only if that is so of all."""
        for problem in self._problems:
            if isinstance(problem, CommitUnknown):
                return problem
        for problem in self._problems:
            if not isinstance(problem, StoreUnavailable):
                return problem
        problem = self._problems[0]
        if not self._answers:
            return problem
        unknown = CommitUnknown(
            f"{self._shown}: of {len(self._answers) + len(self._problems)} appends {len(self._answers)} were "
            f"written and others were not ({problem}); repeat them all"
        )
        unknown.__cause__ = problem
        return unknown


class TakesBatches(Protocol):
    """A store that is given several appends at a time."""

    async def append(self, batch: Sequence[Append]) -> list[Appended]:
        """Write all of *batch* in one transaction."""


class GroupCommit:
    """Submits to a *store* that takes batches: what comes while one is under way goes into the next.

    *batch_max* appends share a batch. One that the store cannot take does not spoil the others.
    """

    def __init__(self, store: TakesBatches, batch_max: int = 64) -> None:
        self._store = store
        self._batch_max = batch_max
        self._waiting: list[tuple[Append, Answered]] = []
        self._flushing: asyncio.Task[None] | None = None

    def submit(self, request: Append, answered: Answered) -> None:
        """Write *request*, and call *answered* once, not from in here."""
        self._waiting.append((request, answered))
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush(), name="tidewheel-group-commit")

    async def _flush(self) -> None:
        try:
            while self._waiting:
                group, self._waiting = self._waiting[: self._batch_max], self._waiting[self._batch_max :]
                await self._commit(group)
        finally:
            self._flushing = None

    async def _commit(self, group: Sequence[tuple[Append, Answered]]) -> None:
        try:
            answers = await self._store.append([request for request, _ in group])
        except Exception as problem:  # noqa: BLE001 - every caller is told
            if len(group) > 1 and not isinstance(problem, StoreUnavailable | CommitUnknown):
                for one in group:  # one of them may be what the store cannot take
                    await self._commit([one])
                return
            for _, answered in group:
                answer_safely(answered, problem)
            return
        for (_, answered), answer in zip(group, answers, strict=True):
            answer_safely(answered, answer)
