"""``JoinSet``: steps whose results come in completion order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Self, overload

from tidewheel.journal.errors import InvalidRequest
from tidewheel.replay.join_set import Drained
from tidewheel.replay.join_set import JoinSet as _JoinSet
from tidewheel.replay.promise import Promise
from tidewheel.sdk.definitions import WorkflowDefinition, definition_of
from tidewheel.sdk.promise import DurablePromise, typed

_NO_TIMEOUT = "a member of a join set has no timeout of its own: bound the wait with asyncio.timeout(...)"


class JoinSet:
    """Submit steps, then take their results as they complete.

    The first ``next()`` closes the set to new members. A failed member raises its error
    from ``next()``, which may be called again. Leaving the block cancels what is left.
    """

    def __init__(self, join_set: _JoinSet, invoke: Callable[..., DurablePromise[Any]]) -> None:
        self._set = join_set
        self._invoke = invoke

    @overload
    def submit(self, member: DurablePromise[Any]) -> DurablePromise[Any]: ...
    @overload
    def submit(
        self, member: Callable[..., Awaitable[Any]] | Callable[..., Any], *args: Any, **options: Any
    ) -> DurablePromise[Any]: ...
    def submit(self, member: Any, *args: Any, **options: Any) -> DurablePromise[Any]:
        """Add a step: a task or workflow with its arguments, as for ``ctx.invoke``, or a promise."""
        if isinstance(member, JoinSet):
            message = "a join set cannot be a member of a join set: submit its steps instead"
            raise InvalidRequest(message)
        if isinstance(member, Promise):
            if args or options:
                message = "submit(promise) takes nothing else: its arguments are already given"
                raise InvalidRequest(message)
            if member.on_settled is not None:
                raise InvalidRequest(_NO_TIMEOUT)
            self._set.add(member)
            return typed(member)
        self._set.check_open()
        if options.get("timeout") is not None and isinstance(definition_of(member), WorkflowDefinition):
            raise InvalidRequest(_NO_TIMEOUT)
        promise: Any = self._invoke(member, *args, **options)
        self._set.add(promise)
        return typed(promise)

    async def next(self) -> Any:
        """Return the next result in completion order; raises at once where none is left."""
        return await self._set.next()

    def __len__(self) -> int:
        """How many results are still to come."""
        return len(self._set)

    def __aiter__(self) -> JoinSet:
        """Go through the results in completion order."""
        return self

    async def __anext__(self) -> Any:
        """Return the next result, or end the loop."""
        try:
            return await self._set.next()
        except Drained:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        """Open the block."""
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """Cancel what is left."""
        self._set.close()
