"""asyncio's ``wait``, ``as_completed`` and ``wait_for``, the same in every process and version.

asyncio puts what it is given into sets. Coroutines and gathered futures hash by
address there, so the order in which they start, or in which a caller sees them,
would differ from process to process. And ``wait_for`` starts a task of its own up to
Python 3.11 but not after, so the order of commands would change with an upgrade.
Under a workflow's loop these functions keep one order; under any other they are
asyncio's own.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

_as_completed = asyncio.as_completed
_wait = asyncio.wait
_wait_for = asyncio.wait_for


class InOrder(set[Any]):
    """A set of futures that iterates, and pops, in the order its maker gives."""

    def __init__(self, members: Iterable[Any]) -> None:
        self._order = list(members)
        super().__init__(self._order)

    def __iter__(self) -> Iterator[Any]:
        known = [member for member in self._order if member in self]
        added = set(super().__iter__()).difference(known)
        return iter(known + sorted(added, key=lambda member: getattr(member, "number", 0)))

    def pop(self) -> Any:
        """Remove and return the first member."""
        for member in self:
            self.remove(member)
            return member
        return super().pop()


def install(is_workflow_loop: Callable[[object], bool]) -> None:
    """Replace the functions by ones that look at the running loop first."""

    def in_workflow() -> bool:
        return is_workflow_loop(asyncio._get_running_loop())  # noqa: SLF001 - get_running_loop may raise

    @functools.wraps(_as_completed)
    def as_completed(fs: Iterable[Any], **options: Any) -> Any:
        if in_workflow():
            fs = [asyncio.ensure_future(one) for one in dict.fromkeys(fs)]
        return _as_completed(fs, **options)

    @functools.wraps(_wait)
    async def wait(fs: Iterable[Any], **options: Any) -> tuple[set[Any], set[Any]]:
        if not in_workflow():
            return await _wait(fs, **options)
        given = list(dict.fromkeys(fs))
        done, pending = await _wait(given, **options)
        return (
            InOrder(one for one in given if one in done),
            InOrder(one for one in given if one in pending),
        )

    @functools.wraps(_wait_for)
    async def wait_for(fut: Awaitable[Any], timeout: float | None) -> Any:
        if not in_workflow():
            return await _wait_for(fut, timeout)
        async with asyncio.timeout(timeout):
            return await fut

    for module in (asyncio, asyncio.tasks):
        for replacement in (as_completed, wait, wait_for):
            setattr(module, replacement.__name__, replacement)
