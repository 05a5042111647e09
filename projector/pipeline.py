"""What becomes of events that arrived: projected by every sink, then settled.

Rule 1: a message is acknowledged after every sink has stored what it says, never before. So a projector that
dies leaves it to be delivered again, and then it was seen already.
Rule 2: an event that is early waits. If the one before it does not come in time that is a gap: its run, and
no other, is halted, marked as stale and told of, and what is missing is read from the journal meanwhile.
Rule 3: what cannot be read is a dead letter with its reason, and its run is read from the journal too.
Rule 4: the journal decides. A run that cannot be read from it stays stale, and its messages are let go of:
whoever looks later (``looking``) tries again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final

from tidewheel.broker.errors import PoisonMessage
from tidewheel.broker.protocol import Delivery
from tidewheel.journal.errors import TidewheelError
from tidewheel.journal.public import PublicEvent
from tidewheel.projector.alerts import GAP_DETECTED, LAG_HIGH, Alarm
from tidewheel.projector.arrivals import Arrival, arrived
from tidewheel.projector.folding import Followed
from tidewheel.projector.inbox import Inbox
from tidewheel.projector.lag import Lag
from tidewheel.projector.room import WaitingRoom
from tidewheel.projector.sink import Sink
from tidewheel.store.errors import CommitUnknown, StoreUnavailable
from tidewheel.store.records import RunRef
from tidewheel.workers.clock import StoreClock

logger = logging.getLogger("tidewheel.projector")

#: So many runs are read from their journals at a time; others wait for their turn.
HEALS_MAX: Final = 8
#: The messages of a run whose journal could not be read are let go of for so long.
GIVEN_UP_S: Final = 60.0
GIVEN_UP_MAX: Final = 10_000


class Pipeline:
    """See the module."""

    def __init__(  # noqa: PLR0913 - what it is made of
        self,
        sinks: Sequence[Sink],
        inbox: Inbox,
        *,
        namespace: str,
        alarm: Alarm,
        lag: Lag,
        clock: StoreClock,
        patience_s: float,
    ) -> None:
        self._sinks = sinks
        self._inbox = inbox
        self._namespace = namespace
        self._alarm = alarm
        self._lag = lag
        self._clock = clock
        self._patience_s = patience_s
        self._room = WaitingRoom()
        self._healing: dict[RunRef, asyncio.Task[None]] = {}
        self._given_up: dict[RunRef, float] = {}
        #: Events that were taken in, and deliveries of what was seen already or could not be read.
        self.taken = self.repeated = self.buried = self.gaps = 0

    @property
    def is_waiting(self) -> bool:
        """Whether somebody waits for an event that should have come before."""
        return bool(self._room)

    async def stop(self) -> None:
        """Leave off healing; what waits goes back to its queue with its consumer."""
        tasks = list(self._healing.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def read(self, deliveries: Sequence[Delivery]) -> list[Arrival]:
        """Return what *deliveries* bring; those that nobody can read become dead letters."""
        now = _now()
        arrivals = []
        for delivery in deliveries:
            try:
                arrivals.append(arrived(delivery, self._namespace, now))
            except PoisonMessage as problem:
                logger.warning("message %r is buried: %s", delivery.message.message_id, problem)
                self.buried += 1
                await self._inbox.bury(delivery, str(problem))
        return arrivals

    async def project(self, arrivals: Sequence[Arrival]) -> None:
        """Project *arrivals*, together with what waits for them, and settle what is stored.

        Raises ``StoreUnavailable`` with nothing settled, to be called again with the same.
        """
        by_run: dict[RunRef, list[Arrival]] = {}
        for arrival in arrivals:
            by_run.setdefault(arrival.run, self._room.of(arrival.run)).append(arrival)
        for run in self._healing.keys() & by_run.keys():
            self._room.seat(run, by_run.pop(run))
        await self._project_safely(by_run)

    async def look_again(self) -> None:
        """See whether what others wait for has come, from wherever; whoever waited too long found a gap."""
        runs = [run for run in self._room.runs() if run not in self._healing]
        await self._project_safely({run: self._room.of(run) for run in runs})
        for run in self._room.overdue(runs, _now(), self._patience_s):
            if len(self._healing) < HEALS_MAX:
                self._begin_to_heal(run, is_gap=True)

    async def _project_safely(self, by_run: Mapping[RunRef, Sequence[Arrival]]) -> None:
        """One run that cannot be projected, for whatever reason, must not hold up the others."""
        if not by_run:
            return
        try:
            await self._project(by_run)
        except (StoreUnavailable, CommitUnknown):
            raise
        except Exception as problem:
            if len(by_run) > 1:
                for run, arrivals in by_run.items():
                    await self._project_safely({run: arrivals})
                return
            ((run, arrivals),) = by_run.items()
            logger.exception("the events of run %s cannot be projected", run)
            self._room.seat(run, ())
            for arrival in arrivals:
                self.buried += 1
                await self._inbox.bury(arrival.delivery, f"{type(problem).__name__}: {problem}")

    async def _project(self, by_run: Mapping[RunRef, Sequence[Arrival]]) -> None:
        events = {run: [arrival.event for arrival in arrivals] for run, arrivals in by_run.items()}
        followed = [await sink.take(events) for sink in self._sinks]
        self._note_taken([event for found in followed for one in found.values() for event in one.taken])
        for run, arrivals in by_run.items():
            await self._settle(run, arrivals, [found[run] for found in followed])

    def _note_taken(self, taken: Sequence[PublicEvent]) -> None:
        self.taken += len(taken)
        if self._lag.note(taken, self._clock.now()):
            self._alarm.raise_alert(
                LAG_HIGH,
                f"what is projected now happened {self._lag.seconds:.1f} s ago",
                lag_s=round(self._lag.seconds, 3),
            )

    async def _settle(self, run: RunRef, arrivals: Sequence[Arrival], followed: Sequence[Followed]) -> None:
        """Acknowledge what every sink has seen, bury what one could not read, and let the others wait."""
        seen = min(one.seq for one in followed)
        broken = {one.broken.run_seq: one.reason for one in followed if one.broken is not None}
        taken = {event.run_seq for one in followed for event in one.taken}
        is_given_up = self._is_given_up(run)
        early = []
        for arrival in arrivals:
            seq = arrival.event.run_seq
            if seq <= seen or is_given_up:
                self.repeated += seq not in taken
                taken.discard(seq)
                await self._inbox.acknowledge(arrival.delivery)
            elif seq in broken:
                logger.warning("event %d of run %s is buried: %s", seq, run, broken[seq])
                self.buried += 1
                await self._inbox.bury(arrival.delivery, f"cannot be projected: {broken[seq]}")
            else:
                early.append(arrival)
        self._room.seat(run, early)
        if broken and run not in self._healing:
            self._begin_to_heal(run, is_gap=False)

    # Healing

    def _begin_to_heal(self, run: RunRef, *, is_gap: bool) -> None:
        task = asyncio.create_task(self._heal(run, is_gap=is_gap), name="tidewheel-projector-heal")
        self._healing[run] = task
        task.add_done_callback(lambda _: self._healing.pop(run, None))

    async def _heal(self, run: RunRef, *, is_gap: bool) -> None:
        """Read *run* from its journal, and let go of what waited for it."""
        try:
            if is_gap:
                await self._tell_of_gap(run)
            seqs = [await sink.heal(run) for sink in self._sinks]
        except (StoreUnavailable, CommitUnknown) as problem:
            logger.warning("run %s is read from its journal later: %s", run, problem)
            return  # it still waits, and is overdue
        except Exception as problem:
            logger.exception("run %s stays stale: its journal cannot be projected", run)
            self._give_up(run, problem)
            seqs = [None]
        seen = min((seq for seq in seqs if seq is not None), default=None)
        waiting = self._room.of(run)
        done = [arrival for arrival in waiting if seen is None or arrival.event.run_seq <= seen]
        for arrival in waiting:
            arrival.at = _now()  # what still is early has found another gap
        self._room.seat(run, [arrival for arrival in waiting if arrival not in done])
        for arrival in done:
            await self._inbox.acknowledge(arrival.delivery)

    async def _tell_of_gap(self, run: RunRef) -> None:
        for sink in self._sinks:
            await sink.halt(run)
        waiting = self._room.of(run)
        first = min(waiting, key=lambda arrival: arrival.event.run_seq).event
        self.gaps += 1
        self._alarm.raise_alert(
            GAP_DETECTED,
            f"event {first.run_seq} came without event {first.prev_seq}, which is read from the journal",
            run_id=run.run_id,
            run_seq=first.run_seq,
            prev_seq=first.prev_seq,
            waiting=len(waiting),
        )

    def _give_up(self, run: RunRef, problem: Exception) -> None:
        if len(self._given_up) >= GIVEN_UP_MAX:
            self._given_up.clear()
        self._given_up[run] = _now() + GIVEN_UP_S
        if isinstance(problem, TidewheelError):
            logger.warning("run %s: %s", run, problem)

    def _is_given_up(self, run: RunRef) -> bool:
        until = self._given_up.get(run)
        if until is None:
            return False
        if _now() < until:
            return True
        del self._given_up[run]
        return False


def _now() -> float:
    return asyncio.get_running_loop().time()
