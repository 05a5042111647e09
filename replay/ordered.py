"""``asyncio.wait`` and ``asyncio.as_completed`` in the caller's order.

asyncio puts what it is given into sets. Coroutines and gathered futures hash by
address there, so the order in which they start, or in which a caller sees them,
would differ from process to process. Under a workflow's loop both functions keep
the order they were given; under any other loop they are asyncio's own.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

_as_completed = asyncio.as_completed
_wait = asyncio.wait


class InOrder(set[Any]):
    """A set of futures that iterates, and pops, in the order its maker gives."""

    def __init__(self, members: Iterable[Any]) -> None:
        self._order = list(members)
        super().__init__(self._order)

    def __iter__(self) -> Iterator[Any]:
        return (member for member in self._order if member in self)

    def pop(self) -> Any:
        """Remove and return the first member."""
        for member in self:
            self.remove(member)
            return member
        return super().pop()


def install(is_workflow_loop: Callable[[object], bool]) -> None:
    """Replace both functions by ones that look at the running loop first."""

    @functools.wraps(_as_completed)
    def as_completed(fs: Iterable[Any], **options: Any) -> Any:
        if is_workflow_loop(asyncio._get_running_loop()):  # noqa: SLF001 - the public call raises where there is none
            fs = [asyncio.ensure_future(one) for one in dict.fromkeys(fs)]
        return _as_completed(fs, **options)

    @functools.wraps(_wait)
    async def wait(fs: Iterable[Any], **options: Any) -> tuple[set[Any], set[Any]]:
        if not is_workflow_loop(asyncio._get_running_loop()):  # noqa: SLF001 - the public call raises where there is none
            return await _wait(fs, **options)
        given = list(dict.fromkeys(fs))
        done, pending = await _wait(given, **options)
        return (
            InOrder(one for one in given if one in done),
            InOrder(one for one in given if one in pending),
        )

    for module in (asyncio, asyncio.tasks):
        setattr(module, "as_completed", as_completed)  # noqa: B010 - the stubs know no such assignment
        setattr(module, "wait", wait)  # noqa: B010 - the stubs know no such assignment
