"""One run's code between activations: shown facts one at a time, asked for its moves.

The one rule: facts reach the code one at a time, in the order that
``ExecutionResumed.applied`` records, and after each the code runs until nothing in it
can move. Live execution and replay obey it alike, so the interleaving is a function
of the journal alone.

An execution is made from a segment's entries (``load``), told of later facts by the
same door, and moved by ``activate``, which returns the events to append or None where
the code asked for nothing new: then what it was shown goes into the next ``applied``.
It does no I/O: whoever holds it appends, executes tasks, and drops it (``evict``)
after any append that is not known to be committed.
"""

from __future__ import annotations

import asyncio
import contextvars
import datetime as dt
import logging
import operator
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any, Protocol

import msgspec
from msgspec import UNSET

from tidewheel.journal import events as ev
from tidewheel.journal.errors import InvalidRequest
from tidewheel.journal.ids import CommandId, CommandType, PromiseId
from tidewheel.replay import ending
from tidewheel.replay.history import History
from tidewheel.replay.loop import DeterministicLoop, DurableTimer, Spinning
from tidewheel.replay.matching import COMPLETED_BY, Matcher
from tidewheel.replay.promise import Promise
from tidewheel.replay.signal_waits import SignalWaits
from tidewheel.replay.violation import Halted, Violation
from tidewheel.replay.waiting import suspension, wait_is_over
from tidewheel.replay.winding_up import WindingUp

logger = logging.getLogger("tidewheel.replay")

#: A hundred years in seconds: a longer timer, or NaN, is a mistake.
DELAY_MAX = 3_153_600_000.0


class Entropy(Protocol):
    """Where ``ctx.random()`` and ``ctx.uuid()`` get their first value from."""

    def random(self) -> float:
        """A float in [0, 1)."""

    def uuid(self) -> str:
        """A UUID as text."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """How strictly code must fit its journal."""

    strict_inputs: bool = False
    allow_orphans: bool = False


class Program(Protocol):
    """A workflow as the execution sees it."""

    def main(self, execution: Execution, given: list[Any]) -> Coroutine[Any, Any, Any]:
        """Make the coroutine that does the work and returns its result as JSON."""

    def error(self, problem: BaseException) -> ev.Error:
        """Describe an exception that the code let through."""


class Activation(msgspec.Struct, frozen=True):
    """What one activation came to: events to append, all or none, in this order."""

    events: list[ev.Event]
    violation: Violation | None = None


class Execution:
    """A workflow's code on its deterministic loop. See the module's rule."""

    def __init__(
        self,
        program: Program,
        run: PromiseId,
        *,
        policy: Policy | None = None,
        entropy: Entropy,
        first_position: int = 0,
    ) -> None:
        self.run = run
        self.entropy = entropy
        self.history = History(first_position=first_position)
        self.policy = policy or Policy()
        self.loop = DeterministicLoop(self)  # type: ignore[abstract]  # its refusals are filled in at import
        self.matcher = Matcher(
            self.history, run_path=run.path, strict_inputs=self.policy.strict_inputs, halt=self.loop.halt
        )
        #: Commands the code asked for and the journal does not have yet.
        self.moves: list[ev.Event] = []
        #: True while what the code asks for is new rather than recorded.
        self.live = False
        self.evicted = False
        #: The run's remembered values, as JSON.
        self.state: dict[str, Any] = {}
        #: Everything unsettled that the code has asked for, oldest first.
        self.pending: dict[str, Promise | DurableTimer] = {}
        #: Invokes the code gave up on; whoever executes them may stop.
        self.abandoned: dict[str, ev.InvokeScheduled] = {}
        self.signals = SignalWaits(self.history)
        self._program: Program | None = program
        self._main: asyncio.Task[Any] | None = None
        self._winding_up = WindingUp(self.loop)
        self._shown: set[str] = set()
        self._applied: list[str] = []
        self._received: list[ev.SignalReceived] = []
        self._asked = False
        self._cancel_shown = False
        #: Whether "cancel" is one of the facts in ``_applied``.
        self._cancel_applied = False
        self._last_wait: ev.ExecutionAwaiting | None = None
        self._stopped: ev.Error | None = None
        self._over = False

    # What the holder calls

    def load(self, entries: Iterable[ev.Entry]) -> None:
        """Take in journal entries of this segment that this execution did not write itself."""
        for entry in entries:
            self.history.observe(entry)

    def activate(self, now: dt.datetime) -> Activation | None:
        """Show the code all that is new and return what it asked for; None if that is nothing."""
        assert not self.evicted
        history = self.history
        assert history.started is not None, "a segment begins with ExecutionStarted"
        if self._over or history.terminal is not None:
            return None
        if self._last_wait is not None and len(history.unshown) == 1 and not history.deliveries:
            with self.loop:  # the code waits, and one thing has come: nearly always
                self._carefully(self._show_one, now)
            return self._result(unfinished=False)
        if history.cancel is not None and self._cancelled_unstarted():
            self._over = True
            return Activation([ev.ExecutionCancelled(reason=history.cancel.reason)])
        if not history.admitted:
            return None
        unfinished = history.waiting is None and self._last_wait is None
        with self.loop:
            if self._main is None:
                self._carefully(self._show_recorded)
            if not unfinished:
                self._carefully(self._show_new, now)
        return self._result(unfinished=unfinished)

    def replay(self) -> None:
        """Run the code through everything recorded, and no further."""
        if self._cancelled_unstarted():
            return
        with self.loop:
            if self._main is None:
                self._carefully(self._show_recorded)

    def ending(self) -> ev.Event | None:
        """How the code has ended, if it has; what the journal should say, or will."""
        if self._stopped is not None:
            return ev.ExecutionFailed(error=self._stopped)
        if self._cancelled_unstarted():
            assert self.history.cancel is not None
            return ev.ExecutionCancelled(reason=self.history.cancel.reason)
        if self._main is None or self.matcher.violation is not None:
            return None
        if not self._main_is_over():
            return None if self._is_waiting() else ending.deadlock()
        assert self._program is not None
        cancel = self.history.cancel if self._cancel_shown else None
        last = ending.outcome(self._main, self._program, cancel)
        if isinstance(last, ev.ExecutionContinued):
            return msgspec.structs.replace(last, next_position=self.matcher.next_position())
        return last

    def runnable(self) -> bool:
        """Tell whether an activation could move the code: something is unshown, or unfinished."""
        history = self.history
        if self._over or history.terminal is not None:
            return False
        if not history.admitted:
            return self._cancelled_unstarted()
        if self._is_unfinished() or history.unshown:
            return True
        if not history.deliveries:
            return False
        if self._main is None:
            return any(history.deliveries.values())
        return bool(self.signals.due())

    def open_invokes(self) -> Iterator[Promise]:
        """The invokes the code still waits for or may come back to, oldest first."""
        return (p for p in self.pending.values() if isinstance(p, Promise) and p.event is not None)

    def waiting_on(self) -> list[str]:
        """The paths whose settling would move the code."""
        return [path for path, one in self.pending.items() if one.awaited()]

    def evict(self) -> None:
        """Give up this run's memory. ``finally`` blocks run, but their durable calls are refused."""
        if self.evicted:
            return
        self.evicted = True
        for one in self.pending.values():
            if isinstance(one, Promise):
                one.owner = None
        self.loop.abandon(self._forget, is_over=self._left_nothing())

    def _left_nothing(self) -> bool:
        """Tell whether dropping the code runs none of it: it returned. An error would keep frames alive."""
        main = self._main
        if main is None or self.pending:
            return not self.pending
        return main.done() and not main.cancelled() and main.exception() is None

    def _forget(self) -> None:
        for one in list(self.pending.values()):
            for promise in [one, *one.twins] if isinstance(one, Promise) else [one]:
                promise.cancel()
        self.pending.clear()
        self.signals.clear()
        self.moves.clear()
        self._winding_up.forget()
        self._main = None
        self._program = None

    # Showing

    def _is_unfinished(self) -> bool:
        """Tell whether the latest activation was cut off before it recorded how it ended."""
        return self.history.waiting is None and self._last_wait is None

    def _cancelled_unstarted(self) -> bool:
        """Tell whether the run was cancelled before its first activation: then no code runs."""
        return not self.history.moved and self.history.cancel is not None and self._main is None

    def _carefully(self, step: Callable[..., None], *given: Any) -> None:
        try:
            step(*given)
        except Halted:
            pass  # the violation is kept, and looked at once the code has stopped
        except Spinning as problem:
            self._stopped = ev.Error(type="Spinning", message=str(problem))
            self.loop.halt()

    def _show_recorded(self) -> None:
        history = self.history
        assert history.started is not None
        assert self._program is not None
        resumes = history.resumes
        unfinished = history.waiting is None and history.terminal is None
        if history.started.state is not UNSET:
            self.state = dict(history.started.state)
        self.loop.now = history.started_at.timestamp()
        self.live = unfinished and not resumes
        main = self._program.main(self, history.started.input)
        self._main = self.loop.create_task(main, name="main", context=contextvars.Context())
        self._move()
        for place, resume in enumerate(resumes, start=1):
            self.live = unfinished and place == len(resumes)
            self.loop.now = max(self.loop.now, resume.now.timestamp())
            for fact in resume.applied:
                self._show(fact)

    def _show_one(self, now: dt.datetime) -> None:
        """Show the one thing that is new."""
        self.live = True
        loop, moment = self.loop, now.timestamp()
        loop.now = max(loop.now, moment)
        if not self._main_is_over():
            (fact,) = self.history.unshown
            self._apply(fact)

    def _show_new(self, now: dt.datetime) -> None:
        self.live = True
        unshown = self.history.unshown
        due = self.signals.due() if self.history.deliveries else ()
        if not unshown and not due:
            return
        self.loop.now = max(self.loop.now, now.timestamp())
        turns: list[tuple[int, Callable[[str], None], str]] = [
            (seq, self._apply, fact) for fact, seq in unshown.items()
        ]
        turns += [(seq, self._offer_delivery, name) for seq, name in due]
        turns.sort(key=operator.itemgetter(0))
        for _seq, show, what in turns:
            if self._main_is_over():
                return
            show(what)

    def _apply(self, fact: str) -> None:
        del self.history.unshown[fact]
        self._applied.append(fact)
        if fact == ev.CANCEL:
            self._cancel_applied = True
        self._show(fact)

    def _show(self, fact: str) -> None:
        if fact == ev.CANCEL:
            self._cancel_shown = True
            if self._main is not None and not self._main.done():
                self._main.cancel()
        else:
            self._shown.add(fact)
            if self.abandoned:
                self.abandoned.pop(fact, None)
            promise = self.pending.pop(fact, None)
            if promise is not None:
                self._settle(promise, fact)
        self._move()

    def _offer_delivery(self, name: str) -> None:
        waiter = self.signals.oldest(name)
        if waiter is None or not self.history.deliveries[name]:
            return  # taken, or given up on, since the activation began
        self._received.append(self.signals.receive(waiter, name))
        self._applied.append(waiter.path)
        self._show(waiter.path)

    def _move(self) -> None:
        self.loop.run_until_idle()
        if self._main is not None and self._main.done() and not self.loop.halted:
            self._winding_up.move()

    def _main_is_over(self) -> bool:
        """Tell whether the code has ended: halted, or returned with all its branches at rest."""
        main = self._main
        if main is not None and not main.done():
            return self.loop.halted
        return self.loop.halted or (
            main is not None and (not self.loop.open_tasks() or not self._is_waiting())
        )

    def _is_waiting(self) -> bool:
        return any(one.awaited() for one in self.pending.values())

    # What an activation came to

    def _result(self, *, unfinished: bool) -> Activation | None:
        if self.matcher.violation is not None:
            return self._violated(self.matcher.violation)
        # A suspended run stays so until what its journal says it waits for has arrived,
        # also where changed code would no longer wait for it.
        wait = self._last_wait or self.history.waiting
        if not unfinished and not wait_is_over(wait, self.history, cancelled=self._cancel_applied):
            return None
        if self._stopped is not None:
            return self._finish([ev.ExecutionFailed(error=self._stopped)], unfinished=unfinished)
        if self._main_is_over():
            return self._ended(unfinished=unfinished)
        if unfinished or self.moves or self._asked:
            signals = self.signals.open_waits() if self.signals.open else []
            wait = suspension(self.pending, signals)
            if wait.waiting_on:
                return self._suspend(wait, unfinished=unfinished)
        elif self._is_waiting():
            return None
        return self._finish([ending.deadlock()], unfinished=unfinished)

    def _suspend(self, wait: ev.ExecutionAwaiting, *, unfinished: bool) -> Activation:
        events = self._opening(unfinished=unfinished)
        events += self.moves
        events.append(wait)
        self._last_wait = wait
        self.moves = []
        return Activation(events)

    def _opening(self, *, unfinished: bool) -> list[ev.Event]:
        self._asked = False
        if unfinished:
            return []
        now = dt.datetime.fromtimestamp(self.loop.now, dt.UTC)
        opening: list[ev.Event] = [*self._received, ev.ExecutionResumed(applied=self._applied, now=now)]
        self._applied, self._received, self._cancel_applied = [], [], False
        return opening

    def _violated(self, violation: Violation) -> Activation:
        self._over = True
        return Activation([ev.ExecutionFailed(error=violation.as_error())], violation)

    def _ended(self, *, unfinished: bool) -> Activation:
        assert self._main is not None
        assert self._program is not None
        orphans = [] if self.policy.allow_orphans else self.history.orphans()
        if orphans:
            return self._violated(orphans[0])
        unheard = [task for task in self.loop.unheard_tasks() if task is not self._main]
        ending.report_unhandled(unheard, self.unhandled)
        last = self.ending()
        assert last is not None
        if not isinstance(last, ev.ExecutionContinued):
            return self._finish([last], unfinished=unfinished)
        now = dt.datetime.fromtimestamp(self.loop.now, dt.UTC)
        following = ending.next_segment(
            self.history, last, self.state, now=now, cancel_shown=self._cancel_shown
        )
        return self._finish([last, *following], unfinished=unfinished)

    def _finish(self, last: list[ev.Event], *, unfinished: bool) -> Activation:
        self._over = True
        return Activation([*self._opening(unfinished=unfinished), *self.moves, *last])

    # What commands and the loop call

    def expect(self, promise: Promise | DurableTimer, path: str) -> None:
        """File an unsettled command; settle it at once if its fact was shown before the code asked."""
        if path in self._shown:
            self._settle(promise, path)
            return
        known = self.pending.get(path)
        if known is not None and isinstance(known, Promise) and isinstance(promise, Promise):
            known.add_twin(promise)
            return
        self.pending[path] = promise
        if self.abandoned:
            self.abandoned.pop(path, None)

    def _settle(self, promise: Promise | DurableTimer, path: str) -> None:
        type_ = promise.command.type if isinstance(promise, Promise) else CommandType.TIMER
        settled_by = self.history.settled_by.get(path)
        if settled_by not in COMPLETED_BY[type_]:  # as a timer that is said to complete a step
            recorded = None if settled_by is None else settled_by.__name__
            asked = COMPLETED_BY[type_][0].__name__
            self.matcher.refuse(Violation(f"{type_.value} at {path}", "completed_by", recorded, asked))
        promise.settle(self.history.facts[path])

    def asked(self) -> None:
        """The code asked for something that has no event of its own, so this activation is recorded."""
        if self.live:
            self._asked = True

    def promise_abandoned(self, promise: Promise) -> None:
        """The code gave up on *promise*; its command goes on while a twin is wanted."""
        if self.evicted or self.pending.get(promise.path) is not promise:
            return
        wanted = [twin for twin in promise.twins if not twin.done()]
        if wanted:
            self.pending[promise.path], wanted[0].twins = wanted[0], wanted[1:]
            return
        del self.pending[promise.path]
        if promise.event is not None and promise.path not in self.history.facts:
            self.abandoned[promise.path] = promise.event
        if promise.command.type is CommandType.TIMER:
            self._cancel_timer(promise.path)

    def timer_scheduled(self, timer: DurableTimer, delay: float) -> None:
        """A sleep or timeout of asyncio's own: a durable timer like any other."""
        timer.path = self.schedule_timer(self.matcher.next(CommandType.TIMER), delay)
        self.expect(timer, timer.path)

    def timer_cancelled(self, timer: DurableTimer) -> None:
        """asyncio no longer needs the timer; after it fired that means nothing."""
        if getattr(timer, "path", None) in self.pending:
            del self.pending[timer.path]
            self._cancel_timer(timer.path)

    def schedule_timer(self, command: CommandId, delay: float) -> str:
        """Match or record a timer and return its path."""
        if not delay <= DELAY_MAX:
            message = f"a timer of {delay!r} seconds is not possible: at most a hundred years are"
            raise InvalidRequest(message)
        delay = float(delay)
        record = self.matcher.find(command)
        if record is not None:
            self.matcher.value(command, "duration", record.event.duration, delay)
            return record.path
        path = self.matcher.allocate()
        fire_at = dt.datetime.fromtimestamp(self.loop.now + delay, dt.UTC)
        self.moves.append(ev.TimerScheduled(promise_id=path, duration=delay, fire_at=fire_at))
        return path

    def _cancel_timer(self, path: str) -> None:
        command = self.matcher.next(CommandType.TIMER_CANCEL)
        record = self.matcher.find(command)
        if record is not None:
            self.matcher.same(command, "promise_id", record.event.promise_id, path)
        else:
            self.moves.append(ev.TimerCancelled(promise_id=path))

    def time_observed(self) -> None:
        """The code saw the time: the moment must be recorded, or a replay would show a later one."""
        self.asked()

    def unhandled(self, context: dict[str, Any]) -> None:
        """An exception nobody awaited: said once, when it happens live."""
        if self.live:
            logger.error("%s: %s", self.run, context.get("message"), exc_info=context.get("exception"))
