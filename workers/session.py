"""One run in one worker: its code, the steps it executes here, and the deliveries it was brought by.

A *turn* is one activation as a pipeline over one value: load what others wrote, show it to the code
together with what happened here, take its moves, append facts and moves together, carry out what
the commit allows. When there is nothing left to do the deliveries are acknowledged. In the normal
case a sequential step costs one commit: its result and the code's next moves.

A turn waits for what has to be loaded, and for the store's answer. Everything here may be lost at any moment.
The code's memory is dropped (``_forget``) after any append that is not known to be committed.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any

from tidewheel.broker.protocol import Delivery
from tidewheel.replay.execution import Execution
from tidewheel.sdk.hinting import publication_of
from tidewheel.sdk.program import execution_of
from tidewheel.store.append import (
    Append,
    Appended,
    Completed,
    Fact,
    Fate,
    Hint,
    Moves,
    Park,
    Retrying,
    Started,
)
from tidewheel.store.errors import CommitUnknown, StoreUnavailable, Unreadable
from tidewheel.store.ledger import UNSEEN
from tidewheel.store.protocol import Loaded
from tidewheel.store.records import RunRef
from tidewheel.telemetry import switch
from tidewheel.workers import fitting, telling
from tidewheel.workers.dispatching import give_orders
from tidewheel.workers.held import Held
from tidewheel.workers.inline import InlineSteps
from tidewheel.workers.near_timers import NearTimers
from tidewheel.workers.opening import Opening
from tidewheel.workers.services import Services
from tidewheel.workers.turn import Turn, parks, pinned, request_of, settle, settled_in, unknown

logger = logging.getLogger("tidewheel.workers")

#: Turns in a row that may find the fence gone before the delivery is given back.
STALE_MAX = 50
#: The longest pause between two turns while the store cannot be used.
PAUSE_MAX_S = 5.0


class Session:
    """See the module. *on_idle* is called when nothing is under way here any more."""

    def __init__(self, services: Services, run: RunRef, on_idle: Callable[[Session], None]) -> None:
        self.run = run
        self._services = services
        self._on_idle = on_idle
        #: The run's code; cold where it was made anew, and has not moved yet.
        self._execution: Execution | None = None
        self._is_cold = True
        #: The run as its start left it, if a hint says so and nothing else is known; or how to start it.
        self._sketch = b""
        self._opening: Opening | None = None
        #: The queue of the run's workers, once it was read.
        self._queue: str | None = None
        self._token = b""
        #: The last event the execution knows, and the steps that the store knows to be abandoned.
        self._seq = -1
        self._abandoned: set[str] = set()
        #: Why there is something to do: facts to append, others' facts to load, facts to show.
        self._facts: list[Fact] = []
        self._must_load = self._must_show = False
        self._is_owed_a_turn = False
        self._is_over = False
        self._stale = 0
        self._held = Held(services.config.hold_s, services.acknowledge)
        self._steps = InlineSteps(services, run, self._happened)
        self._timers = NearTimers(services.clock, self._happened)
        #: Whether turns are being taken; the task, or the turn, in which something is awaited.
        self._is_turning = False
        self._waiting: asyncio.Task[None] | None = None
        self._turn: Turn | None = None
        self._pause_s = services.config.pause_s
        #: Those who wait for the end of all turns.
        self._at_rest: asyncio.Event | None = None

    # What the worker calls

    def deliver(self, delivery: Delivery, sketch: bytes = b"") -> None:
        """Take a hint: somebody says that the run has something to do, and maybe how it was then."""
        self._held.add(delivery)
        if sketch and not self._is_turning and self._execution is None and not delivery.earlier_deliveries:
            self._sketch = sketch
        self._happened(None)

    def open(self, delivery: Delivery, opening: Opening) -> None:
        """Take a command to start the run, of which nothing is known here."""
        self._opening = opening
        self.deliver(delivery)

    def is_idle(self) -> bool:
        """Tell whether nothing is under way here; what is kept in memory can be dropped."""
        return not self._is_turning and not self._steps.in_flight()

    def is_empty(self) -> bool:
        """Tell whether there is nothing here that another session would not have to begin with."""
        return self._execution is None and self.is_idle()

    def is_busy(self) -> bool:
        """Tell whether a turn or a step is being executed; waiting for a retry is not that."""
        return self._is_turning or self._steps.is_executing()

    async def finish(self) -> None:
        """Return when no turn is under way."""
        while self._is_turning:
            self._at_rest = self._at_rest or asyncio.Event()
            await self._at_rest.wait()

    async def hand_back(self, limit_s: float) -> None:
        """Stop executing steps and give everything back, for another worker to go on at once."""
        try:
            async with asyncio.timeout(limit_s):
                await self.finish()
        except TimeoutError:  # the store is away: what is in hand is found by whoever takes over
            self._is_over = True
            if self._waiting is not None:
                self._waiting.cancel()
                await asyncio.wait([self._waiting])
            self._turn = None
        held = self._held.take()
        if facts := self._steps.hand_back(self._services.clock.now()):
            await self._services.append(Append(run=self.run, facts=tuple(facts)))
        self.drop()
        await self._services.release(held)

    def drop(self) -> None:
        """Forget everything. What was under way here is taken up again by whoever is woken."""
        self._forget()
        self._steps.stop()
        self._timers.disarm_all()
        self._facts, self._must_load, self._must_show = [], False, False
        self._opening = None

    def retire(self) -> None:
        """Forget everything for good, and let nothing here refer to itself: its memory is free at once."""
        self.drop()
        self._steps.untie()
        self._timers.untie()

    # The loop

    def _happened(self, fact: Fact | None) -> None:
        """An attempt or a timer ended here; or, without a fact, the store has to be asked."""
        if fact is None:
            self._must_load = True
        else:
            self._facts.append(fact)
        self._go_on()

    def _go_on(self) -> None:
        """Take turns, unless that is under way."""
        if not self._is_turning:
            self._is_turning = True
            self._services.turns.add(self)

    def _has_work(self) -> bool:
        return not self._is_over and bool(self._facts or self._must_load or self._must_show)

    def take_turn(self, now: dt.datetime) -> None:
        """Begin a turn; it ends when what it appends is written."""
        if not self._has_work():
            self._rest()
        elif self._execution is None or self._must_load:
            at_hand = self._at_hand(now)
            if at_hand is not None:
                self._begin_turn(at_hand, now)
            else:
                self._await(self._load_and_turn())
        else:
            self._begin_turn(None, now)

    def _await(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what has to be waited for, in the middle of a turn or after the last."""
        self._waiting = asyncio.create_task(work, name=f"tidewheel-run-{self.run.run_id}")

    async def _load_and_turn(self) -> None:
        try:
            loaded = await self._load()
        except Exception as problem:  # noqa: BLE001 - whatever it is, it is this run's alone
            self._turn_failed(problem)
            return
        self._waiting = None
        if self._execution is None and loaded is None:
            self._turn_ended()
        else:
            self._begin_turn(loaded, self._services.clock.now())

    def _begin_turn(self, loaded: Loaded | None, now: dt.datetime) -> None:
        """Show, move, and append what comes of it."""
        happened, self._facts = self._facts, []
        try:
            turn = Turn(happened, self._facts_of_turn(happened, loaded), now)
            turn.began_ns = 0 if switch.active is None else telling.moment_ns()
            self._show(loaded, turn)
            self._move(turn)
            request = request_of(turn, self.run, self._opening, is_owed=self._is_owed_a_turn)
        except Exception as problem:  # noqa: BLE001 - whatever it is, it is this run's alone
            self._facts = [*happened, *self._facts]
            self._turn_failed(problem)
            return
        if request is None:
            self._turn_ended()
        else:
            self._turn = turn
            self._services.writer.submit(request, self._answered)

    def _answered(self, answer: Appended | Exception) -> None:
        """The store has answered: carry out what the commit allows."""
        turn, self._turn = self._turn, None
        if turn is None:
            return  # everything was given back meanwhile
        if isinstance(answer, Exception):
            self._facts = [*self._steps.not_written(turn.happened, answer), *self._facts]
            self._turn_failed(answer)
            return
        self._pause_s = self._services.config.pause_s
        if self._opening is not None:
            self._opening.answered(answer)
            self._opening = None
        if answer.hints:  # not to this run: it is being driven
            answer.hints = [hint for hint in answer.hints if hint.run != self.run or hint.path is not None]
        self._services.follow_up(answer)
        try:
            self._carry_out(turn, answer)
        except Exception as problem:  # noqa: BLE001 - as above
            self._turn_failed(problem)
        else:
            self._turn_ended()

    def _turn_ended(self) -> None:
        """Take the next turn if there is something to do, else let go of the deliveries."""
        if self._has_work():
            self._services.turns.add(self)
        else:
            self._rest()

    def _turn_failed(self, problem: Exception) -> None:
        """What the code knows may not have been committed: begin anew, a little later."""
        self._forget()
        if isinstance(problem, StoreUnavailable | CommitUnknown):
            # Results are kept until they can be written.
            logger.warning("run %s waits for the store: %s", self.run, problem)
            self._must_load = True
            self._await(self._pause())
        else:
            logger.error("run %s: its turn failed, its delivery is given back", self.run, exc_info=problem)
            self._await(self._give_back())

    async def _pause(self) -> None:
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, PAUSE_MAX_S)
        await asyncio.sleep(pause_s)
        self._waiting = None
        self._turn_ended()

    def _rest(self) -> None:
        """Nothing is left to do here for now."""
        self._is_turning, self._waiting = False, None
        if self._held:
            # While a step is executed here one is kept, so that a loss is noticed (``owner_message``). A long
            # wait for a retry is no reason: many such would leave no room for others.
            self._held.settle(keep=1 if self._steps.is_executing_soon() else 0)
        if self._at_rest is not None:
            self._at_rest.set()
            self._at_rest = None
        if self.is_idle():
            self._on_idle(self)

    # Load

    def _at_hand(self, now: dt.datetime) -> Loaded | None:
        """Return the run as whoever asks for a turn has it; None if it has to be loaded."""
        if self._opening is not None:
            self._queue, self._must_load = self._opening.start.queue, False
            return self._opening.loaded(self.run, now)
        if not self._sketch:
            return None
        loaded, self._sketch = fitting.sketched(self._services, self.run, self._sketch), b""
        if loaded is not None:
            self._queue, self._must_load = loaded.run.queue, False
        return loaded

    async def _load(self) -> Loaded | None:
        """Read what others wrote; None where the run is not for us."""
        after = None if self._execution is None else self._seq
        self._must_load = False
        try:
            loaded = await self._services.store.load(self.run, after=after)
        except Unreadable as problem:
            await self._park(Park(kind="unreadable", reason=str(problem)))
            return None
        if loaded is None or not loaded.run.takes_turns:
            self.drop()
            return None
        if loaded.run.parked is not None:
            await self._set_aside()
            return None
        self._services.clock.tell(loaded.now)
        self._queue = loaded.run.queue
        if self._execution is not None and loaded.run.token != self._token:
            self._forget()  # another worker's activation came between: begin anew from the journal
            self._must_load = True
            return None
        return loaded if await self._is_for_us(loaded) else None

    async def _is_for_us(self, loaded: Loaded) -> bool:
        """Tell whether this worker is the one to go on with the run, with code that fits."""
        if loaded.run.queue not in self._services.config.queues:
            # It came over this worker's own queue, or from one that gave up on its: it is for other workers.
            self._services.postman.send([publication_of(Hint(run=self.run, queue=loaded.run.queue))])
            self.drop()
            return False
        elsewhere = fitting.live_owner(loaded, self._services.worker_id, self._held)
        if elsewhere is not None and await fitting.forward(self._services, loaded.run, elsewhere):
            self.drop()
            return False
        misfit = fitting.misfit(self._services.app, loaded.run)
        if misfit is None:
            return True
        if await fitting.pass_on(self._services, loaded):
            self.drop()
        else:
            await self._park(misfit)
        return False

    async def _set_aside(self) -> None:
        """The run is parked: its code is not shown anything, but what happened here is still written."""
        self._forget()
        self._must_show = False
        facts, self._facts = tuple(self._facts), []
        if not facts:
            return
        try:
            answer = await self._services.append(Append(run=self.run, facts=facts))
        except BaseException:
            self._facts = [*facts, *self._facts]
            raise
        self._steps.after_commit(answer, facts)

    async def _park(self, mark: Park) -> None:
        await self._services.append(Append(run=self.run, mark=mark))
        logger.warning("run %s is parked (%s): %s", self.run, mark.kind, mark.reason)
        self.drop()

    # Show

    def _facts_of_turn(self, happened: Sequence[Fact], loaded: Loaded | None) -> tuple[Fact, ...]:
        """What happened here since the last turn, and what is to be said of steps that others lost.

        What the journal says already is left out.
        """
        facts = happened
        known: Collection[str] = () if self._execution is None else self._execution.history.facts
        if loaded is not None:
            self._steps.observe(loaded.entries)
            reported = {fact.path for fact in happened if isinstance(fact, Started | Completed | Retrying)}
            facts = [*happened, *self._steps.take_over(loaded, self._held, reported)]
            if loaded.timers:
                facts += self._timers.take_due(loaded.timers, loaded.now, happened)
            if facts:
                known = {*known, *settled_in(loaded.entries)}
        return unknown(facts, known)

    def _show(self, loaded: Loaded | None, turn: Turn) -> None:
        """Bring the code's memory up to date. Facts of this turn are shown as if they were committed."""
        if loaded is not None:
            execution = self._execution or self._begin(loaded)
            execution.load(loaded.entries)
            self._seq = loaded.run.last_seq
            self._is_owed_a_turn = loaded.run.wake_at is not None
            self._timers.arm(loaded.timers, loaded.now)
        assert self._execution is not None
        if turn.facts:
            settle(self._execution.history, turn.facts, self._seq)

    def _begin(self, loaded: Loaded) -> Execution:
        definition = self._services.app.workflows[loaded.run.workflow]
        self._execution = execution_of(
            definition,
            self.run.promise,
            entropy=self._services.entropy,
            first_position=loaded.run.first_position,
        )
        self._is_cold = True
        self._token = loaded.run.token
        self._abandoned = {step.path for step in loaded.steps if step.abandoned}
        return self._execution

    # Move

    def _move(self, turn: Turn) -> None:
        """Let the code go on, and decide where what it asked for goes."""
        execution = self._execution
        assert execution is not None
        self._must_show = False
        turn.activation, turn.started = execution.activate(turn.now), execution.history.started
        abandoned: tuple[str, ...] = ()
        wanted: tuple[str, ...] = ()
        if self._abandoned or execution.abandoned:
            abandoned = tuple(execution.abandoned.keys() - self._abandoned)
            wanted = tuple(self._abandoned - execution.abandoned.keys())
        if self._is_cold or wanted:
            self._steps.learn_closures(execution)
            self._is_cold = False
        turn.park = parks(self._services.app, execution, turn.activation)
        assert self._queue is not None
        activation = turn.activation if turn.park is None else None
        orders = turn.orders = give_orders(
            self._services, execution, activation, seq=self._seq, queue=self._queue
        )
        events = orders.events = pinned(
            self._services.app, execution, orders.events, is_first=not self._token
        )
        turn.moves = Moves(
            expected=self._token,
            token=self._services.chance.token() if events else self._token,
            base_seq=self._seq,
            events=events,
            owner=self._services.worker_id,
            message_id=self._held.message_id,
            children=orders.children,
            abandoned=abandoned,
            wanted=wanted,
        )

    # Carry out

    def _carry_out(self, turn: Turn, answer: Appended) -> None:
        """Do what the commit allows: start steps, arm timers, stop what the code gave up on."""
        execution, moves, orders = self._execution, turn.moves, turn.orders
        assert execution is not None
        assert moves is not None
        assert orders is not None
        self._steps.after_commit(answer, turn.facts)
        if answer.fate is Fate.ENDED or turn.park is not None:
            self.drop()
        elif answer.fate is not Fate.COMMITTED:
            if answer.fate is Fate.REPEATED:
                self._steps.not_begun(orders.inline)
            self._forget()
            self._must_load = True
            self._stale += 1
            if self._stale >= STALE_MAX:
                raise RuntimeError(f"the fence of {self.run.run_id} was gone {STALE_MAX} times in a row")
        elif orders.ends:
            self.drop()
            self._must_load = orders.continues
        else:
            self._stale = 0
            self._is_owed_a_turn = False
            self._token, self._seq = moves.token, answer.last_seq
            if answer.landed:
                execution.load(answer.landed)
                self._steps.observe(answer.landed)
                # The store owes the run a turn for it, until an append says that it was shown: as long as
                # it does, it takes a hint to be under way and sends no further one.
                self._is_owed_a_turn = any(not isinstance(entry.event, UNSEEN) for entry in answer.landed)
            if self._abandoned or execution.abandoned:
                self._abandoned = set(execution.abandoned)
                self._steps.drop(execution.abandoned)
            self._steps.start(orders.inline, execution, answer.now)
            self._timers.follow(orders.timers)
            self._facts += orders.facts
            self._must_load = self._must_load or bool(moves.wanted)
            moved = turn.activation is not None or bool(answer.landed)
            self._must_show = self._is_owed_a_turn or (moved and execution.runnable())

    def _forget(self) -> None:
        """Drop the code's memory: it may know what was not committed."""
        if self._execution is not None:
            self._execution.evict()
            self._execution = None

    async def _give_back(self) -> None:
        self.drop()
        await asyncio.sleep(self._services.config.pause_s)
        held = self._held.take()
        await self._services.release(held)
        if not held and self._queue is not None:
            # Nobody else comes back to what was dropped: its owner, this worker, is alive.
            self._services.postman.send([publication_of(Hint(run=self.run, queue=self._queue))])
        self._waiting = None
        self._turn_ended()
