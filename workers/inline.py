"""The steps of one run that this worker executes itself.

A step is begun only after its ``InvokeScheduled`` is committed with this worker as its owner, or after
its ``InvokeStarted`` is. What was lost with another worker (or in this one) is taken over by facts:
the lost attempt failed, the next one is started. So every execution counts, and a body that
kills its process does not do so for ever.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import msgspec

from tidewheel.broker.protocol import Delivery
from tidewheel.journal import events as ev
from tidewheel.journal.errors import TidewheelError
from tidewheel.replay.execution import Execution
from tidewheel.replay.promise import Promise
from tidewheel.sdk.failures import error_of
from tidewheel.store.append import (
    Append,
    Appended,
    Beat,
    Completed,
    Fact,
    Released,
    Retrying,
    Started,
    Verdict,
)
from tidewheel.store.errors import CommitUnknown, StoreUnavailable
from tidewheel.store.page import NEAR
from tidewheel.store.protocol import Loaded
from tidewheel.store.records import RunRef, StepRecord
from tidewheel.workers.dispatching import not_included
from tidewheel.workers.fitting import lost_its_owner
from tidewheel.workers.outcomes import attempt_lost, attempt_stopped
from tidewheel.workers.runner import Attempt, Committed, Outcome, Underway
from tidewheel.workers.services import Services

logger = logging.getLogger("tidewheel.workers")

#: A step whose next attempt is due in this time is as good as being executed.
SOON_S = 2.0


class _Known(msgspec.Struct, eq=False):
    """A step of the run, as far as executing it needs."""

    event: ev.InvokeScheduled
    scheduled_at: dt.datetime
    #: When the next attempt is due, after one failed.
    retry_at: dt.datetime | None = None
    beat: bytes | None = None
    #: The closure of an operation, once the code has asked for it in this process.
    call: Callable[[], Any] | None = None


class Doing(msgspec.Struct, eq=False):
    """An attempt that is being executed here, or the wait for it."""

    number: int
    known: _Known | None = None
    attempt: Attempt | None = None
    body: Underway | None = None
    timer: asyncio.TimerHandle | None = None
    #: Whether it has ended, or was given up.
    is_over: bool = False
    #: Whether the journal says that the attempt was started, or is about to.
    is_started: bool = False
    #: The heartbeat that is being written, and what the next one will say.
    beating: asyncio.Task[None] | None = None
    next_beat: bytes | None = None

    def has_begun(self) -> bool:
        """Tell whether the body was called, whatever the journal says of it."""
        return self.is_started or (self.attempt is not None and self.attempt.has_begun)

    def stop(self) -> None:
        """Give it up."""
        body, timer = self.body, self.timer
        self.let_go()
        if body is not None:
            body.cancel()
        if timer is not None:
            timer.cancel()

    def let_go(self) -> None:
        """It is over: keep nothing of it, since who watches for late starts may remember this for a while."""
        self.is_over = True
        self.known = self.attempt = self.body = self.timer = None


class InlineSteps:
    """See the module. *happened* takes facts to append, or None where the store has to be asked."""

    def __init__(self, services: Services, run: RunRef, happened: Callable[[Fact | None], None]) -> None:
        self._services = services
        self._run = run
        self._happened = happened
        self._me = services.worker_id
        self._known: dict[str, _Known] = {}
        self._doing: dict[str, Doing] = {}
        #: Attempts that begin here once their ``InvokeStarted``, which was asked for, is committed.
        self._claims: set[tuple[str, int]] = set()
        #: Steps given to this worker by a commit whose reply was lost: nobody has begun them.
        self._unbegun: set[str] = set()
        #: How long the store took over results that it did not write, by their paths.
        self._taken_s: dict[str, float] = {}

    def untie(self) -> None:
        """Nobody is told of what happens any more; all steps are stopped."""
        self._happened = _tell_nobody

    def in_flight(self) -> bool:
        """Tell whether a step is being executed here, or is about to be."""
        return bool(self._doing)

    def is_executing(self) -> bool:
        """Tell whether a body is being executed here."""
        return any(doing.body is not None for doing in self._doing.values())

    def is_executing_soon(self) -> bool:
        """Tell whether a body is being executed here, or will be in a moment, as after a short pause."""
        for doing in self._doing.values():
            if doing.body is not None:
                return True
            if doing.timer is not None and doing.timer.when() <= asyncio.get_running_loop().time() + SOON_S:
                return True
        return False

    # Learning

    def observe(self, entries: Iterable[ev.Entry]) -> None:
        """Learn of steps from the journal."""
        for entry in entries:
            event = entry.event
            if isinstance(event, ev.InvokeScheduled):
                if event.kind != "workflow" and event.dispatch == "inline":
                    self._known[event.promise_id] = _Known(event, entry.at or self._services.clock.now())
            elif isinstance(event, ev.InvokeRetrying):
                known = self._known.get(event.promise_id)
                if known is not None:
                    known.retry_at = event.retry_at
            elif isinstance(event, ev.InvokeCompleted | ev.StepSkipped):
                self._known.pop(event.promise_id, None)
                self._stop(event.promise_id)

    # Beginning

    def start(self, events: Iterable[ev.InvokeScheduled], execution: Execution, now: dt.datetime) -> None:
        """Begin the first attempt of steps that were just committed."""
        for event in events:
            path = event.promise_id
            known = self._known[path] = _Known(event, now)
            if path in execution.abandoned:
                continue
            if event.kind == "operation":
                known.call = _closure(execution, path)
            if self._services.state_store.starts_may_be_late:
                self._begin(path, 1)  # its start is written with its end, or by itself if that takes a while
            else:
                self._happened(self._started(path, 1))

    def not_begun(self, events: Iterable[ev.InvokeScheduled]) -> None:
        """Remember steps that are ours, and that were not begun since the reply of their commit was lost."""
        self._unbegun |= {event.promise_id for event in events}

    def learn_closures(self, execution: Execution) -> None:
        """Remember what the code would execute for its open operations."""
        for promise in execution.open_invokes():
            known = self._known.get(promise.path)
            if known is not None and promise.execute is not None:
                known.call = promise.execute

    def take_over(self, loaded: Loaded, held: Iterable[Delivery], reported: Collection[str]) -> list[Fact]:
        """Return what has to be written before steps that nobody executes any more are begun here.

        Of those in *reported* something is about to be written.
        """
        facts: list[Fact] = []
        for step in loaded.steps:
            if step.kind == "workflow" and step.state == "scheduled" and step.path not in reported:
                event = _schedule_of(loaded, step)
                if event is not None:
                    facts.append(not_included(self._services, event, "workflow"))
            is_inline = step.dispatch == "inline" and step.kind != "workflow"
            if is_inline and not step.abandoned and step.state != "parked" and step.path not in self._doing:
                if step.path in reported:
                    continue
                known = self._known.get(step.path)
                if known is not None:
                    known.scheduled_at, known.beat = step.scheduled_at, step.beat
                    facts += self._take_up(step, known, loaded, held)
        return facts

    def _take_up(
        self, step: StepRecord, known: _Known, loaded: Loaded, held: Iterable[Delivery]
    ) -> list[Fact]:
        is_lost = step.owner == self._me or lost_its_owner(step, loaded, held)
        name = known.event.function_name
        if (
            (is_lost or step.owner is None)
            and step.kind != "operation"
            and name not in self._services.app.tasks
        ):
            attempt = step.attempt if step.state == "started" else step.attempt + 1
            return [not_included(self._services, known.event, "task", attempt)]
        if step.path in self._unbegun and step.owner == self._me and step.state == "scheduled":
            return self._claim(step, known)
        if is_lost:
            if step.state == "retrying":
                # The next attempt would have begun with the commit of its start: nothing is lost.
                released = Released(path=step.path, owner=step.owner or "")
                return [released, *self._claim(step, known)]
            attempt = step.attempt if step.state == "started" else step.attempt + 1
            lost = attempt_lost(
                known.event, attempt=attempt, worker=step.owner, now=loaded.now, next_owner=self._me
            )
            if isinstance(lost, Retrying) and lost.retry_at is not None:
                return [lost, self._started(step.path, attempt + 1)]
            return [lost]
        if step.owner is None:
            return self._claim(step, known)
        return []

    def _claim(self, step: StepRecord, known: _Known) -> list[Fact]:
        """Begin the next attempt of a step that is nobody's, now or when it is due."""
        number = step.attempt + 1
        if known.retry_at is not None and step.state == "retrying":
            left = known.retry_at - self._services.clock.now()
            if left > NEAR:
                return []  # the keeper's
            if left > dt.timedelta(0):
                self._wait(step.path, number, known.retry_at, lambda: self._look_again(step.path))
                return []
        return [self._started(step.path, number)]

    def _started(self, path: str, number: int) -> Started:
        self._claims.add((path, number))
        return Started(path=path, attempt=number, owner=self._me)

    def _retry(self, path: str, number: int) -> None:
        """Ask for the next attempt. Unlike the first, nobody else must have begun it meanwhile."""
        self._doing.pop(path, None)
        self._happened(self._started(path, number))

    def _look_again(self, path: str) -> None:
        self._doing.pop(path, None)
        self._happened(None)

    def after_commit(self, answer: Appended, facts: Sequence[Fact]) -> None:
        """Follow up on what became of *facts*: begin what was claimed, wait for what is retried."""
        if self._taken_s:
            self._taken_s.clear()  # what was not written before is written by now
        for fact, verdict in zip(facts, answer.verdicts, strict=True):
            if isinstance(fact, Completed):  # what most are
                if verdict is Verdict.WRITTEN:
                    self._known.pop(fact.path, None)
                continue
            is_repeated = isinstance(fact, Started) and verdict is Verdict.DUPLICATE
            is_claim = isinstance(fact, Started) and (fact.path, fact.attempt) in self._claims
            if isinstance(fact, Started):
                self._claims.discard((fact.path, fact.attempt))
            if verdict is not Verdict.WRITTEN and not is_repeated:
                if isinstance(fact, Started | Retrying):
                    self._stop(fact.path)  # somebody else has it
                continue
            if isinstance(fact, Started):
                if not is_claim:
                    continue  # its start was journaled late, and it may have ended since
                doing = self._doing.get(fact.path)
                if doing is not None:
                    doing.stop()  # it only waited, as after a loss: the journal has its start already
                self._begin(fact.path, fact.attempt, is_started=True)
            elif isinstance(fact, Retrying) and fact.retry_at is not None:
                known = self._known.get(fact.path)
                if known is not None:
                    known.retry_at = fact.retry_at
                    if fact.next_owner == self._me:
                        self._await_retry(fact.path, fact.attempt + 1, fact.retry_at)

    def not_written(self, facts: Iterable[Fact], problem: Exception) -> list[Fact]:
        """A write of *facts* failed: return what is to be written next, once the store can be used again."""
        if not isinstance(problem, StoreUnavailable | CommitUnknown):
            return list(facts)
        return [self._after_failed_write(fact, problem.taken_s) for fact in facts]

    def _after_failed_write(self, fact: Fact, taken_s: float) -> Fact:
        known = self._known.get(fact.path) if isinstance(fact, Completed) else None
        if known is None or not isinstance(fact, Completed):
            return fact
        taken_s = self._taken_s[fact.path] = self._taken_s.get(fact.path, 0.0) + taken_s
        return self._services.after_failed_write(self._run, known.event, fact, taken_s)

    def _await_retry(self, path: str, number: int, retry_at: dt.datetime) -> None:
        if path not in self._doing:
            self._wait(path, number, retry_at, lambda: self._retry(path, number))

    def _wait(self, path: str, number: int, until: dt.datetime, then: Callable[[], None]) -> None:
        delay = self._services.clock.seconds_until(until)
        timer = asyncio.get_running_loop().call_later(delay, then)
        self._doing[path] = Doing(number, timer=timer)

    # Executing

    def _begin(self, path: str, number: int, *, is_started: bool = False) -> None:
        known = self._known.get(path)
        definition = None
        if known is not None and known.event.kind != "operation":
            definition = self._services.app.tasks.get(known.event.function_name)
        if known is None or (known.call is None and definition is None):
            self._doing.pop(path, None)
            return  # an operation that the code has not asked for again
        doing = self._doing[path] = Doing(number, known, is_started=is_started)
        self._unbegun.discard(path)
        if self._services.stopping.is_set():
            return  # it is handed back, for another worker to begin
        attempt = Attempt(
            run=self._run,
            event=known.event,
            number=number,
            owner=self._me,
            elapsed=self._elapsed(known),
            last_heartbeat=None if known.beat is None else msgspec.json.decode(known.beat),
            call=known.call if known.event.kind == "operation" else None,
            definition=definition,
            on_beat=self._beat,
        )
        doing.attempt = attempt
        doing.body = self._services.runner.begin(attempt, self._ended)
        if not is_started:
            self._services.late_starts.watch(self._journal_start, path, doing)

    def _elapsed(self, known: _Known) -> float:
        if known.event.limits is msgspec.UNSET:
            return 0.0  # nobody asks
        return (self._services.clock.now() - known.scheduled_at).total_seconds()

    def _ended(self, attempt: Attempt, outcome: Outcome) -> None:
        """An attempt came to *outcome*: say so, unless it was given up."""
        path = attempt.event.promise_id
        doing = self._doing.get(path)
        if doing is None or doing.attempt is not attempt:
            return
        known = doing.known
        assert known is not None
        del self._doing[path]
        doing.let_go()
        if isinstance(outcome, Committed):
            self._happened(None)
            return
        if isinstance(outcome, Exception):  # the store refused the step's transaction, say
            logger.warning("%s of run %s: %s", attempt, self._run, outcome)
            outcome = ev.Result(error=error_of(outcome))
        self._happened(self._services.attempt_ended(attempt, outcome, known.scheduled_at))
        if not self._services.runner.running:
            self._services.turns.sweep()  # no other body is about to end

    def _journal_start(self, path: str, doing: Doing) -> None:
        """The attempt has lasted a while: let people see that it was started."""
        if self._doing.get(path) is doing and not doing.is_started:
            doing.is_started = True
            self._happened(Started(path=path, attempt=doing.number, owner=self._me))

    def _beat(self, attempt: Attempt, details: Any) -> None:
        """Write a heartbeat; those that come while one is being written become one."""
        path = attempt.event.promise_id
        doing = self._doing.get(path)
        if doing is None or doing.attempt is not attempt:
            return
        doing.next_beat = self._known[path].beat = msgspec.json.encode(details)
        if doing.beating is None or doing.beating.done():
            doing.beating = self._services.spawn(self._write_beats(path, doing))

    async def _write_beats(self, path: str, doing: Doing) -> None:
        while doing.next_beat is not None and self._doing.get(path) is doing:
            beat = Beat(path=path, attempt=doing.number, details=doing.next_beat)
            started = Started(path=path, attempt=doing.number, owner=self._me)
            facts: tuple[Fact, ...] = (beat,) if doing.is_started else (started, beat)
            doing.is_started, doing.next_beat = True, None
            try:
                answer = await self._services.append(Append(run=self._run, facts=facts))
            except TidewheelError as problem:
                logger.warning("a heartbeat of run %s was not written: %s", self._run, problem)
                return
            if answer.verdicts[-1] is not Verdict.WRITTEN:
                self._stop(path)  # another worker has the step

    # Stopping

    def drop(self, paths: Collection[str]) -> None:
        """Stop executing what the code gave up on."""
        # Either may be long, and this is asked after every commit: go through the shorter one.
        fewer, more = (self._doing, paths) if len(self._doing) < len(paths) else (paths, self._doing)
        for path in [path for path in fewer if path in more]:
            self._stop(path)

    def stop(self) -> None:
        """Stop everything, without a word."""
        for path in list(self._doing):
            self._stop(path)
        self._known.clear()
        self._claims.clear()
        self._taken_s.clear()

    def hand_back(self, now: dt.datetime) -> list[Fact]:
        """Stop everything and return what lets others go on at once."""
        facts: list[Fact] = []
        for path, doing in list(self._doing.items()):
            if doing.has_begun():
                event = self._known[path].event
                facts.append(attempt_stopped(event, attempt=doing.number, worker=self._me, now=now))
            else:
                facts.append(Released(path=path, owner=self._me))
        self.stop()
        return facts

    def _stop(self, path: str) -> None:
        doing = self._doing.pop(path, None)
        if doing is not None:
            doing.stop()


def _schedule_of(loaded: Loaded, step: StepRecord) -> ev.InvokeScheduled | None:
    for entry in loaded.entries:
        if entry.run_seq == step.scheduled_seq and isinstance(entry.event, ev.InvokeScheduled):
            return entry.event
    return None


def _closure(execution: Execution, path: str) -> Callable[[], Any] | None:
    promise = execution.pending.get(path)
    return promise.execute if isinstance(promise, Promise) else None


def _tell_nobody(_: Fact | None) -> None:
    """What is stopped does not happen."""
