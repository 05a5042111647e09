"""An attempt that needs nothing but a slot and the event loop, which is what most are.

Its body is a task of its own: one that cancels itself fails, and takes nobody with it. Nobody waits beside
it: it tells how it ended. An attempt that is given up frees its slot at once, whatever its body still does.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec import UNSET

from tidewheel.journal import events as ev
from tidewheel.sdk.limits import Limits
from tidewheel.workers import telling
from tidewheel.workers.attempt import Attempt, body_of, hear, result_of
from tidewheel.workers.outcomes import limit_of, start_timed_out, timed_out
from tidewheel.workers.slots import Slots

#: Takes the result, or what kept it from being one.
Ended: TypeAlias = Callable[[Attempt, ev.Result | Exception], None]


class Presence:
    """Knows whether everything in the event loop is being cancelled, as asyncio does when a program ends.

    A body that is cancelled then has not cancelled itself.
    """

    #: The event loop, once it has begun.
    loop: asyncio.AbstractEventLoop

    def __init__(self) -> None:
        self._waiting: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Be there, to be cancelled with all others. May be called twice."""
        if self._waiting is None:
            self.loop = asyncio.get_running_loop()
            self._waiting = self.loop.create_task(_wait_for_ever(), name="tidewheel-presence")

    def is_ending(self) -> bool:
        """Tell whether it was cancelled."""
        return self._waiting is not None and (self._waiting.done() or self._waiting.cancelling() > 0)

    def end(self) -> None:
        """Leave. May be called twice."""
        if self._waiting is not None:
            self._waiting.cancel()


async def _wait_for_ever() -> None:
    await asyncio.get_running_loop().create_future()


class OnLoop:
    """One such attempt: it waits for a slot, is executed, and has ended. *ended* is called once, later."""

    __slots__ = (
        "_attempt",
        "_body",
        "_context",
        "_ended",
        "_is_over",
        "_limits",
        "_loop",
        "_presence",
        "_slots",
        "_timer",
    )

    def __init__(
        self, slots: Slots, presence: Presence, limits: Limits, attempt: Attempt, ended: Ended
    ) -> None:
        self._slots = slots
        self._presence = presence
        self._limits = limits
        self._attempt = attempt
        self._ended = ended
        self._loop = attempt.loop = presence.loop
        # Not that of whoever happens to leave the slot it gets.
        self._context = contextvars.copy_context()
        self._is_over = False
        self._body: asyncio.Task[Any] | None = None
        self._timer: asyncio.Handle | None = None
        if attempt.event.limits is not UNSET:
            attempt.asked_at = self._loop.time()
        if slots.take():
            self._begin()
        else:
            slots.queue_up(self._begin)

    def cancel(self) -> None:
        """Give it up: nobody wants to know how it ends."""
        if self._is_over:
            return
        if self._body is None and self._timer is None:
            self._is_over = True
            self._slots.leave()
            return
        self._leave()
        if self._attempt.span is not None:
            telling.end_attempt(self._attempt, None)
        if self._body is not None:
            self._body.cancel()

    def _begin(self) -> bool:
        """There is a slot: execute the attempt, unless it was given up."""
        if self._is_over:
            return False
        attempt = self._attempt
        if attempt.event.limits is not UNSET and not self._may_begin():
            return True
        self._body = self._loop.create_task(
            body_of(attempt), name=f"tidewheel-step-{attempt.event.promise_id}", context=self._context
        )
        self._body.add_done_callback(self._body_ended)
        return True

    def _may_begin(self) -> bool:
        """Hold the attempt to its limits; false if it is too late to begin."""
        attempt = self._attempt
        if attempt.waits_too_long():
            attempt.has_begun = True
            late = ev.Result(error=start_timed_out(attempt.event))
            self._timer = self._loop.call_soon(self._finish, late)
            return False
        limit_s = limit_of(attempt.event, attempt.elapsed)
        if limit_s is not None:
            self._timer = self._loop.call_later(limit_s, self._outlasts, limit_s)
        return True

    def _outlasts(self, limit_s: float) -> None:
        """The attempt has lasted too long: its body is told, and not waited for."""
        assert self._body is not None
        if self._is_over or self._body.done():
            return
        self._body.cancel()
        error = timed_out(self._attempt.event, f"did not finish within {limit_s:g} s")
        self._finish(ev.Result(error=error))

    def _body_ended(self, body: asyncio.Task[Any]) -> None:
        if self._is_over:
            hear(body)
        elif body.cancelled() and self._presence.is_ending():
            self._leave()
        else:
            self._finish(self._outcome(body))

    def _outcome(self, body: asyncio.Task[Any]) -> ev.Result | Exception:
        try:
            return result_of(self._attempt.event, body, self._limits)
        except Exception as problem:  # noqa: BLE001 - whatever a value does when it is encoded, the step has ended
            return problem

    def _finish(self, outcome: ev.Result | Exception) -> None:
        self._leave()
        if self._attempt.span is not None:
            telling.end_attempt(self._attempt, outcome)
        self._ended(self._attempt, outcome)

    def _leave(self) -> None:
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        self._slots.give_back()
