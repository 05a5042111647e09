"""One run in one worker: its code, the steps it executes here, and the deliveries it was brought by.

A *turn* is one activation as a pipeline over one value: load what others wrote, show it to the code
together with what happened here, take its moves, append facts and moves together, carry out what
the commit allows. When there is nothing left to do the deliveries are acknowledged. In the normal
case a sequential step costs one commit: its result and the code's next moves.

Everything here may be lost at any moment. What counts is in the store, and the code's memory is
dropped (``_forget``) after any append that is not known to be committed.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Final

import msgspec

from tidewheel.broker.protocol import Delivery
from tidewheel.journal import events as ev
from tidewheel.replay.execution import Activation, Execution
from tidewheel.sdk.hinting import publication_of
from tidewheel.sdk.program import execution_of
from tidewheel.store.append import (
    Append,
    Appended,
    Completed,
    Fact,
    Fate,
    Fired,
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
from tidewheel.workers import fitting
from tidewheel.workers.dispatching import Orders, give_orders
from tidewheel.workers.inline import InlineSteps
from tidewheel.workers.near_timers import NearTimers
from tidewheel.workers.services import Services

logger = logging.getLogger("tidewheel.workers")

#: Turns in a row that may find the fence gone before the delivery is given back.
STALE_MAX = 50
#: The longest pause between two turns while the store cannot be used.
PAUSE_MAX_S = 5.0


#: The facts that may be known already, when somebody else was faster, and their events.
_SETTLING: Final = (Completed, Fired)
_SETTLED: Final = (ev.InvokeCompleted, ev.TimerFired)


class Turn(msgspec.Struct, eq=False):
    """One activation, as far as it has come."""

    facts: tuple[Fact, ...]
    #: When it was begun, by the store's clock.
    now: dt.datetime
    activation: Activation | None = None
    orders: Orders | None = None
    moves: Moves | None = None
    park: Park | None = None
    #: What the store said; None where there was nothing to append.
    answer: Appended | None = None


class Session:
    """See the module. *on_idle* is called when nothing is under way here any more."""

    def __init__(self, services: Services, run: RunRef, on_idle: Callable[[Session], None]) -> None:
        self.run = run
        self._services = services
        self._on_idle = on_idle
        self._execution: Execution | None = None
        #: The execution was made anew, and has not moved yet.
        self._is_cold = True
        #: The queue of the run's workers, once it was read.
        self._queue: str | None = None
        self._token = b""
        #: The last event the execution knows, and the steps that the store knows to be abandoned.
        self._seq = -1
        self._abandoned: set[str] = set()
        #: Why there is something to do: facts to append, others' facts to load, facts to show.
        self._facts: list[Fact] = []
        self._must_load = False
        self._must_show = False
        self._is_owed_a_turn = False
        self._is_over = False
        self._stale = 0
        #: The deliveries in hand, and when they have to be let go.
        self._held: list[Delivery] = []
        self._holds: dict[Delivery, asyncio.TimerHandle] = {}
        self._steps = InlineSteps(services, run, self._happened)
        self._timers = NearTimers(services.clock, self._happened)
        self._turning: asyncio.Task[None] | None = None

    # What the worker calls

    def deliver(self, delivery: Delivery) -> None:
        """Take a hint: somebody says that the run has something to do."""
        self._held.append(delivery)
        hold_s = self._services.config.hold_s
        self._holds[delivery] = asyncio.get_running_loop().call_later(hold_s, self._hold_no_longer, delivery)
        self._happened(None)

    def is_idle(self) -> bool:
        """Tell whether nothing is under way here; what is kept in memory can be dropped."""
        return self._turning is None and not self._steps.in_flight()

    def is_empty(self) -> bool:
        """Tell whether there is nothing here that another session would not have to begin with."""
        return self._execution is None and self.is_idle()

    def is_busy(self) -> bool:
        """Tell whether a turn or a step is being executed; waiting for a retry is not that."""
        return self._turning is not None or self._steps.is_executing()

    async def finish(self) -> None:
        """Return when no turn is under way."""
        while self._turning is not None:
            await asyncio.wait([self._turning])

    async def hand_back(self, limit_s: float) -> None:
        """Stop executing steps and give everything back, for another worker to go on at once."""
        if self._turning is not None:
            await asyncio.wait([self._turning], timeout=limit_s)
        if self._turning is not None:  # the store is away: what is in hand is found by whoever takes over
            self._is_over = True
            self._turning.cancel()
            await asyncio.wait([self._turning])
        facts = self._steps.hand_back(self._services.clock.now())
        if facts:
            await self._services.append(Append(run=self.run, facts=tuple(facts)))
        self.drop()
        for delivery in self._take_held():
            await self._services.settle(delivery.release())

    def drop(self) -> None:
        """Forget everything. What was under way here is taken up again by whoever is woken."""
        self._forget()
        self._steps.stop()
        self._timers.disarm_all()
        self._facts, self._must_load, self._must_show = [], False, False

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
        if self._turning is None:
            self._turning = asyncio.create_task(self._take_turns(), name=f"tidewheel-run-{self.run.run_id}")

    def _has_work(self) -> bool:
        return not self._is_over and (bool(self._facts) or self._must_load or self._must_show)

    async def _take_turns(self) -> None:
        pause_s = self._services.config.pause_s
        try:
            while self._has_work():
                try:
                    await self._turn()
                except (StoreUnavailable, CommitUnknown) as problem:
                    # Results are kept until they can be written.
                    logger.warning("run %s waits for the store: %s", self.run.run_id, problem)
                    self._must_load = True
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, PAUSE_MAX_S)
            await self._acknowledge()
        except Exception:
            logger.exception("run %s: its turn failed, and its delivery is given back", self.run.run_id)
            await self._give_back()
        finally:
            self._turning = None
            if self._has_work():
                self._go_on()
            elif self.is_idle():
                self._on_idle(self)

    async def _turn(self) -> None:
        loaded = await self._load() if self._execution is None or self._must_load else None
        if self._execution is None and loaded is None:
            return
        happened, self._facts = self._facts, []
        turn = Turn(self._facts_of_turn(happened, loaded), self._services.clock.now())
        try:
            self._show(loaded, turn)
            self._move(turn)
            await self._append(turn)
        except BaseException:
            self._forget()
            self._facts = [*happened, *self._facts]
            raise
        self._carry_out(turn)

    # Load

    async def _load(self) -> Loaded | None:
        """Read what others wrote; None where the run is not for us."""
        after = None if self._execution is None else self._seq
        self._must_load = False
        try:
            loaded = await self._services.store.load(self.run, after=after)
        except Unreadable as problem:
            await self._park(Park(kind="unreadable", reason=str(problem)))
            return None
        if loaded is None or loaded.run.ended:
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
        logger.warning("run %s is parked (%s): %s", self.run.run_id, mark.kind, mark.reason)
        self.drop()

    # Show

    def _facts_of_turn(self, happened: Sequence[Fact], loaded: Loaded | None) -> tuple[Fact, ...]:
        """What happened here since the last turn, and what is to be said of steps that others lost."""
        facts = happened
        known: Container[str] = () if self._execution is None else self._execution.history.facts
        if loaded is not None:
            self._steps.observe(loaded.entries)
            reported = {fact.path for fact in happened if isinstance(fact, Started | Completed | Retrying)}
            facts = [*happened, *self._steps.take_over(loaded, self._held, reported)]
            if facts:
                settled = [entry.event for entry in loaded.entries if isinstance(entry.event, _SETTLED)]
                facts = _without_known(facts, {event.promise_id for event in settled})
        return tuple(_without_known(facts, known))

    def _show(self, loaded: Loaded | None, turn: Turn) -> None:
        """Bring the code's memory up to date. Facts of this turn are shown as if they were committed."""
        if loaded is not None:
            execution = self._execution or self._begin(loaded)
            execution.load(loaded.entries)
            self._seq = loaded.run.last_seq
            self._is_owed_a_turn = loaded.run.wake_at is not None
            self._timers.arm(loaded.timers)
        assert self._execution is not None
        shown = enumerate(_shown_events(turn.facts), start=self._seq + 1)
        self._execution.load([ev.Entry(seq, turn.now, event) for seq, event in shown])

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
        turn.activation = execution.activate(turn.now)
        abandoned: tuple[str, ...] = ()
        wanted: tuple[str, ...] = ()
        if self._abandoned or execution.abandoned:
            abandoned = tuple(execution.abandoned.keys() - self._abandoned)
            wanted = tuple(self._abandoned - execution.abandoned.keys())
        if self._is_cold or wanted:
            self._steps.learn_closures(execution)
            self._is_cold = False
        turn.park = self._parks(execution, turn.activation)
        assert self._queue is not None
        activation = turn.activation if turn.park is None else None
        orders = turn.orders = give_orders(
            self._services, execution, activation, seq=self._seq, queue=self._queue
        )
        events = orders.events = self._pinned(execution, orders.events)
        turn.moves = Moves(
            expected=self._token,
            token=self._services.chance.bytes() if events else self._token,
            base_seq=self._seq,
            events=events,
            owner=self._services.worker_id,
            message_id=self._held[0].message.message_id if self._held else None,
            children=orders.children,
            abandoned=abandoned,
            wanted=wanted,
        )

    def _pinned(self, execution: Execution, events: list[ev.Event]) -> list[ev.Event]:
        """Say by which code the run goes on, where its start does not."""
        started = execution.history.started
        if not events or started is None or started.component_digest:
            return events
        definition = self._services.app.workflows[started.workflow]
        return fitting.pinned(events, definition, is_first=not self._token)

    def _parks(self, execution: Execution, activation: Activation | None) -> Park | None:
        """A run whose code no longer fits may wait for a fixed deploy instead of failing."""
        if activation is None or activation.violation is None:
            return None
        assert execution.history.started is not None
        definition = self._services.app.workflows[execution.history.started.workflow]
        if definition.on_violation != "park":
            return None
        return Park(kind="violation", reason=activation.violation.message)

    # Append

    async def _append(self, turn: Turn) -> None:
        moves = turn.moves
        assert moves is not None
        says_something = turn.facts or moves.events or moves.abandoned or moves.wanted or turn.park
        if not says_something and not self._is_owed_a_turn:
            return
        request = Append(run=self.run, facts=turn.facts, moves=moves, mark=turn.park)
        turn.answer = await self._services.append(request, driving=self.run)

    # Carry out

    def _carry_out(self, turn: Turn) -> None:
        """Do what the commit allows: start steps, arm timers, stop what the code gave up on."""
        execution, answer, moves, orders = self._execution, turn.answer, turn.moves, turn.orders
        if answer is None:
            return
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
            self._count_stale()
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

    def _count_stale(self) -> None:
        self._stale += 1
        if self._stale >= STALE_MAX:
            message = f"the fence of run {self.run.run_id} was gone {STALE_MAX} times in a row"
            raise RuntimeError(message)

    def _forget(self) -> None:
        """Drop the code's memory: it may know what was not committed."""
        if self._execution is not None:
            self._execution.evict()
            self._execution = None

    # Acknowledge

    async def _acknowledge(self) -> None:
        """Settle the deliveries; while a step is executed here one is kept, so that a loss is noticed.

        A step that waits long for its next attempt is no reason: many such would leave no room for others.
        """
        if not self._held:
            return
        keep = 1 if self._steps.is_executing_soon() else 0  # its message id is the run's ``owner_message``
        done_with = self._held[keep:]
        for delivery in done_with:
            self._let_go(delivery)
        for delivery in done_with:
            await self._services.settle(delivery.acknowledge())

    def _let_go(self, delivery: Delivery) -> None:
        self._held.remove(delivery)
        self._holds.pop(delivery).cancel()

    def _hold_no_longer(self, delivery: Delivery) -> None:
        if delivery in self._held:
            self._let_go(delivery)
            self._services.spawn(self._services.settle(delivery.acknowledge()))

    async def _give_back(self) -> None:
        self.drop()
        await asyncio.sleep(self._services.config.pause_s)
        held = self._take_held()
        for delivery in held:
            await self._services.settle(delivery.release())
        if not held and self._queue is not None:
            # Nobody else comes back to what was dropped: its owner, this worker, is alive.
            self._services.postman.send([publication_of(Hint(run=self.run, queue=self._queue))])

    def _take_held(self) -> list[Delivery]:
        held, self._held = self._held, []
        for hold in self._holds.values():
            hold.cancel()
        self._holds = {}
        return held


def _without_known(facts: Sequence[Fact], known: Container[str]) -> Sequence[Fact]:
    """Leave out what the journal, which has *known*, says already."""
    return [fact for fact in facts if not (isinstance(fact, _SETTLING) and fact.path in known)]


def _shown_events(facts: Iterable[Fact]) -> list[ev.Event]:
    """The events of *facts* that the code is shown."""
    shown: list[ev.Event] = []
    for fact in facts:
        if isinstance(fact, Completed):
            shown.append(ev.InvokeCompleted(promise_id=fact.path, result=fact.result, attempt=fact.attempt))
        elif isinstance(fact, Fired):
            shown.append(ev.TimerFired(promise_id=fact.path))
    return shown
