"""Join sets: results in the order they were shown, each handed out once.

A set closes at the first ``next()``. Each hand-out is journaled, which pins the order
for every replay. A failed member raises its error from ``next()``, which may then be
called again for the rest.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any, Protocol

from tidewheel.journal.errors import InvalidRequest
from tidewheel.journal.ids import CommandId
from tidewheel.replay.loop import DeterministicLoop, WorkflowFuture

if TYPE_CHECKING:
    from tidewheel.replay.promise import Promise


class JoinSetRecorder(Protocol):
    """Who journals what happens to a join set."""

    @property
    def loop(self) -> DeterministicLoop:
        """The run's loop."""

    def join_set_of(self, promise: Promise) -> str | None:
        """The path of the set that *promise* is a member of already."""

    def join_set_submitted(self, join_set: JoinSet, promise: Promise) -> None:
        """*promise* became a member."""

    def join_set_awaited(self, join_set: JoinSet, promise: Promise) -> None:
        """``next()`` returns *promise*'s result now."""


class Drained(InvalidRequest):
    """A join set has no result left that nobody waits for."""


class JoinSet:
    """A group of invokes whose results are consumed one by one."""

    def __init__(self, command: CommandId, path: str, recorder: JoinSetRecorder) -> None:
        self.command = command
        self.path = path
        self.submitted = 0
        self.consumed = 0
        self._recorder = recorder
        self._members: dict[str, Promise] = {}
        self._done: deque[Promise] = deque()
        #: The branches of the code that are inside ``next()``, oldest first.
        self.takers: OrderedDict[_Taker, None] = OrderedDict()
        self._closed = False

    def check_open(self) -> None:
        """Refuse new members after the first ``next()``."""
        if self._closed:
            message = f"join set {self.path} is closed: submit everything before the first next()"
            raise InvalidRequest(message)

    def add(self, promise: Promise) -> None:
        """Make an invoke's *promise* a member."""
        self.check_open()
        if promise.event is None:
            message = (
                f"{promise.command} cannot join a set: members are invokes; race others with asyncio.wait"
            )
            raise InvalidRequest(message)
        owner = self._recorder.join_set_of(promise)
        if owner is not None:
            where = "this" if owner == self.path else "another"
            message = f"{promise.command} is already a member of {where} join set"
            raise InvalidRequest(message)
        if promise.cancelled():
            message = f"{promise.command} was cancelled and cannot join a set"
            raise InvalidRequest(message)
        self._members[promise.path] = promise
        self.submitted += 1
        self._recorder.join_set_submitted(self, promise)
        if promise.done():
            self._done.append(promise)
        else:
            promise.join_set = self

    def __len__(self) -> int:
        """How many results are still to be handed out."""
        return len(self._members)

    async def next(self) -> Any:
        """Return the next member's result in completion order, or raise its error."""
        self._closed = True
        if len(self._members) <= len(self.takers):
            raise self._drained()
        if self._done:
            promise = self._done.popleft()
            del self._members[promise.path]
        else:
            promise = await self._next_done()
        self.consumed += 1
        self._recorder.join_set_awaited(self, promise)
        return promise.result()

    def member_done(self, promise: Promise) -> None:
        """A member was settled, or cancelled by hand: it is handed out, or leaves the set."""
        if promise.path not in self._members:
            return
        if promise.cancelled():
            del self._members[promise.path]
            if len(self.takers) > len(self._members):
                self.takers.popitem()[0].set_exception(self._drained())
        elif self.takers:
            del self._members[promise.path]
            self.takers.popitem(last=False)[0].set_result(promise)
        else:
            self._done.append(promise)

    def close(self) -> None:
        """Cancel what is left: leaving the block ends the set."""
        self._closed = True
        for promise in list(self._members.values()):
            promise.cancel()
        self._members.clear()

    async def _next_done(self) -> Promise:
        taker = _Taker(self.takers, loop=self._recorder.loop)
        self.takers[taker] = None
        try:
            promise: Promise = await taker
        except BaseException:
            self.takers.pop(taker, None)
            if taker.done() and not taker.cancelled() and taker.exception() is None:
                # Handed out and cancelled in the same moment: the result is the next taker's.
                self._hand_back(taker.result())
            raise
        return promise

    def _hand_back(self, promise: Promise) -> None:
        if self.takers:
            self.takers.popitem(last=False)[0].set_result(promise)
        else:
            self._members[promise.path] = promise
            self._done.appendleft(promise)

    def _drained(self) -> Drained:
        what = "drained" if self.consumed else "empty"
        return Drained(f"join set {self.path} has no result to wait for: it is {what}")


class _Taker(WorkflowFuture):
    """A branch inside ``next()``; its place is free the moment it is cancelled."""

    __slots__ = ("_takers",)

    def __init__(self, takers: OrderedDict[_Taker, None], *, loop: DeterministicLoop) -> None:
        super().__init__(loop=loop)
        self._takers = takers

    def cancel(self, msg: Any | None = None) -> bool:
        self._takers.pop(self, None)
        return super().cancel(msg)
