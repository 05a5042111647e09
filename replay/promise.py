"""Promises: the futures that durable commands give to workflow code.

A promise is an asyncio future, so ``gather``, ``wait``, ``timeout`` and the rest take it
as it is. It is settled only when its fact is shown. Cancelling one, by a timeout or by
hand, abandons the command: a fact that arrives later has no effect on the code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import UNSET

from tidewheel.journal import events as ev
from tidewheel.journal.ids import CommandId
from tidewheel.replay.loop import DeterministicLoop, WorkflowFuture

if TYPE_CHECKING:
    from tidewheel.replay.join_set import JoinSet


class Owner(Protocol):
    """Who hears that a promise was abandoned."""

    def promise_abandoned(self, promise: Promise) -> None:
        """The code cancelled *promise* before it was settled."""


class Decoder(Protocol):
    """Turns what the journal has into what the code gets."""

    def value(self, data: Any) -> Any:
        """The value of a success."""

    def error(self, error: ev.Error) -> BaseException:
        """The exception of a failure."""


_make_future = asyncio.Future.__init__


class Promise(WorkflowFuture):
    """The future result of one command, known by its path.

    One is made for every command: its arguments go by position, which spares a dict.
    """

    __slots__ = ("command", "decoder", "event", "owner", "path")

    # Most promises have none of these, so they are not set for each.
    #: The closure of an operation: it exists in this process only.
    execute: Callable[[], Any] | None = None
    signal_name: str | None = None
    join_set: JoinSet | None = None
    #: Other promises for the same command: asking again with its key gives one more.
    twins: list[Promise] | tuple[()] = ()
    #: Called once when the promise is settled or abandoned: stops its timeout.
    on_settled: Callable[[], object] | None = None

    def __init__(
        self,
        command: CommandId,
        path: str,
        decoder: Decoder,
        event: ev.InvokeScheduled | None,
        loop: DeterministicLoop,
        owner: Owner,
    ) -> None:
        _make_future(self, loop=loop)
        self.number = loop.next_number()
        self.command = command
        self.path = path
        self.decoder = decoder
        #: The schedule of an invoke, for whoever executes it.
        self.event = event
        self.owner: Owner | None = owner

    def settle(self, result: ev.Result) -> None:
        """Show the result to the code: here, and to whoever asked again."""
        if not self.done():
            if result.error is not UNSET:
                self.set_exception(self.decoder.error(result.error))
            else:
                try:
                    value = self.decoder.value(result.ok)
                except Exception as problem:  # noqa: BLE001 - a result its code cannot read is the code's to handle
                    self.set_exception(problem)
                else:
                    self.set_result(value)
            if self.join_set is not None or self.on_settled is not None:
                self._finished()
        if self.twins:
            for twin in self.twins:
                twin.settle(result)

    def add_twin(self, twin: Promise) -> None:
        """Let *twin* be settled with this one."""
        if not isinstance(self.twins, list):
            self.twins = []
        self.twins.append(twin)

    def fail(self, problem: BaseException) -> None:
        """End the wait with an error of the code's own making, such as a timeout."""
        if not self.done():
            self.set_exception(problem)
            if self.owner is not None and (self.signal_name is not None or self.event is not None):
                self.owner.promise_abandoned(self)  # what comes later is not for this wait any more
            self._finished()

    def cancel(self, msg: Any | None = None) -> bool:
        """Abandon the command: the code no longer waits for it."""
        cancelled = super().cancel(msg)
        if cancelled:
            if self.owner is not None:
                self.owner.promise_abandoned(self)
            self._finished()
        return cancelled

    def awaited(self) -> bool:
        """Tell whether the code would move if this were settled."""
        if self._callbacks:  # which only an open promise has
            return True
        join_set = self.join_set
        if join_set is not None and join_set.takers and not self.done():
            return True
        return any(twin.awaited() for twin in self.twins) if self.twins else False

    def _finished(self) -> None:
        if self.join_set is not None:
            join_set, self.join_set = self.join_set, None
            join_set.member_done(self)
        if self.on_settled is not None:
            stop, self.on_settled = self.on_settled, None
            stop()
