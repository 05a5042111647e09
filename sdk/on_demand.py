"""Something that is made when it is first asked for, such as a connection.

All who ask while it is being made share one attempt, and its failure; whoever asks after a failure tries
again. It belongs to one event loop. What was made is not closed here: ``take`` hands it to whoever does that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Self, TypeVar

T = TypeVar("T")


class OnDemand(Generic[T]):
    """What *make* gives, once somebody has asked for it."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, T]], *, name: str) -> None:
        """Make it in a task called *name*."""
        self._make = make
        self._name = name
        self._making: asyncio.Task[T] | None = None
        self._made: T | None = None
        #: Whether anybody ever asked for it, also where it could not be made.
        self.was_asked_for = False

    @classmethod
    def having(cls, made: T) -> Self:
        """Return one that has *made* already."""

        async def make() -> T:
            return made

        own = cls(make, name="")
        own._made, own.was_asked_for = made, True
        return own

    async def get(self) -> T:
        """Return it, made if need be; whoever stops waiting for it does not stop the others."""
        if self._made is not None:
            return self._made
        if self._making is None or _has_failed(self._making):
            self.was_asked_for = True
            self._making = asyncio.create_task(self._make(), name=self._name)
            # Whoever waited for it may have been interrupted: then nobody else asks how it ended.
            self._making.add_done_callback(self._keep)
        return await asyncio.shield(self._making)

    async def take(self) -> T | None:
        """End an attempt that is under way; return what was made, if it was."""
        if self._making is not None and self._made is None:
            self._making.cancel()
            await asyncio.wait([self._making])
            self._keep(self._making)
        return self._made

    def peek(self) -> T | None:
        """Return what was made, if it was; from any thread, and from a copy after a fork."""
        return self._made

    def _keep(self, making: asyncio.Task[T]) -> None:
        if not _has_failed(making):
            self._made = making.result()


def _has_failed(making: asyncio.Task[Any]) -> bool:
    return making.done() and (making.cancelled() or making.exception() is not None)
