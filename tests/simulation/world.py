"""One simulated world: its servers, its processes, what befalls them, and how it has to end.

First comes the storm: clients run errands while processes are killed, frozen, cut off and stopped, and
the store's clock is set. Then everything is calm, all processes are up, an operator releases what was
quarantined, and every run must end as it would have without any of it, within bounded virtual time.
"""

from __future__ import annotations

import asyncio
import logging
import random
import traceback
import types
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

from tests.simulation.actors import Actor, ClientActor, KeeperActor, WorkerActor
from tests.simulation.broker import SimulatedBroker, SimulatedQueues
from tests.simulation.effects import EFFECTS, Effects
from tests.simulation.errands import Errand, draw_errand
from tests.simulation.faults import Faults
from tests.simulation.loop import UNHEARD_MAX_S, Process, SimulatedLoop, run
from tests.simulation.store import Clock, Database, SimulatedStore
from tests.simulation.verdicts import judge_errands
from tests.simulation.watch import StoreWatch
from tests.simulation.wire import Wire
from tidewheel.broker import work_items
from tidewheel.store.append import Append, Appended, Unpark
from tidewheel.store.memory import MemoryStore

WORKERS, KEEPERS, CLIENTS = 3, 2, 2
#: Errands that clients have in hand at a time.
ERRANDS_MAX = 14
#: How long the calm may take, in virtual seconds and in steps; what the clock was set back comes on top.
CALM_MAX_S = 1500.0
CALM_STEPS_MAX = 150_000
#: Lines of the trace that a failure shows.
LINES_SHOWN = 150


class SimulationFailed(Exception):
    """Something happened in a simulated world that must not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one world came to."""

    seed: int
    steps: int
    virtual_s: float
    #: Hash over every step and everything written: equal for equal seeds.
    trace: str
    errands: int
    runs: int
    counts: Counter[str]


class World:
    """See the module."""

    def __init__(
        self,
        seed: int,
        steps: int,
        *,
        lines_shown: int | None = LINES_SHOWN,
        odds: Mapping[str, float] = types.MappingProxyType({}),
    ) -> None:
        """*steps* is how long the storm lasts; *odds* of faults are else the seed's."""
        self.seed = seed
        self.steps = steps
        self.chance = random.Random(f"{seed} world")
        self.faults = Faults(random.Random(f"{seed} faults"), odds)
        self.lines: deque[str] = deque(maxlen=lines_shown)
        self.failure: str | None = None
        self.loop = SimulatedLoop(random.Random(f"{seed} schedule"), fate=self._fate)
        self.servers = self.loop.new_process("servers")
        self.clock = Clock(self.loop)
        twin = MemoryStore(clock=self.clock, seed=seed)
        self.twin = twin
        self.watch = StoreWatch(twin, self.fail)
        self.database = Database(twin, self._on_append, self.fail)
        self.queues = SimulatedQueues(self.loop, self.servers)
        self.effects = Effects(
            random.Random(f"{seed} effects"),
            is_completed=self.watch.is_completed,
            is_doubted=lambda process: process.name in self.doubted,
            fail=self.fail,
        )
        #: Processes that others had reason to take for dead.
        self.doubted: set[str] = set()
        self.actors: list[Actor] = []
        self._by_process: dict[Process, Actor] = {}
        self.errands: list[Errand] = []
        self.is_storm = True
        #: By how much the store's clock was set back, all in all.
        self._set_back_s = 0.0

    # Running

    def run(self) -> Report:
        """Let the world go through the storm and the calm, and judge it."""
        log = _ErrorsAreFailures(self)
        logger = logging.getLogger("tidewheel")
        level, propagate = logger.level, logger.propagate
        logger.addHandler(log)
        logger.setLevel(logging.ERROR)
        logger.propagate = False
        ids = random.Random(f"{self.seed} ids")
        self.loop.set_exception_handler(self._on_unhandled)
        self.loop.harness.context.run(EFFECTS.set, self.effects)
        try:
            with mock.patch.object(work_items, "urandom", ids.randbytes):
                run(self.loop, self._live())
        except SimulationFailed:
            raise
        except AssertionError:
            self.failure = self.failure or traceback.format_exc()
            raise SimulationFailed(self._story()) from None
        finally:
            logger.removeHandler(log)
            logger.setLevel(level)
            logger.propagate = propagate
        return self._report()

    async def _live(self) -> None:
        self.actors = [
            *(WorkerActor(self, f"worker{place}", place) for place in range(WORKERS)),
            *(KeeperActor(self, f"keeper{place}", place) for place in range(KEEPERS)),
            *(ClientActor(self, f"client{place}", place) for place in range(CLIENTS)),
        ]
        for actor in self.actors:
            actor.start()
        await self._storm()
        await self._calm()
        self._look_for_unheard(0.0)
        self.watch.look_at_everything()
        judge_errands(self)

    def fail(self, what: str) -> None:
        """Stop the world: this must not happen."""
        if self.failure is None:
            self.failure = what
            self.note(f"FAILURE: {what}")

    def note(self, what: str) -> None:
        """Write a line of the trace."""
        line = f"{self.loop.steps:>7} {self.loop.now_s:10.4f} {what}"
        self.lines.append(line)
        self.loop.record(line)

    # The storm

    async def _storm(self) -> None:
        """Let things go wrong until the steps are spent."""
        while self.loop.steps < self.steps:
            await asyncio.sleep(0.5)
            self._look_for_unheard()
            for name, befall in (
                ("freeze", self._freeze),
                ("consumer_cut", self._cut),
                ("clock_jump", self._jump),
                ("graceful_stop", self._stop),
            ):
                if self.faults.strikes(name):
                    befall()

    def next_errand(self) -> Errand | None:
        """Give a client something to do, while there is a storm and not too much is being done."""
        if not self.is_storm or sum(not errand.is_done for errand in self.errands) >= ERRANDS_MAX:
            return None
        self.errands.append(draw_errand(self.chance, len(self.errands)))
        return self.errands[-1]

    def _fate(self, process: Process) -> bool:
        """Tell whether *process* dies right now, instead of going on."""
        if self.failure is not None:
            raise SimulationFailed(self._story())
        actor = self._by_process.get(process)
        if actor is None or not self.faults.strikes("crash"):
            return False
        self.end(actor, "is killed")
        return True

    def _kill_after_commit(self, process: Process) -> None:
        actor = self._by_process.get(process)
        if actor is not None:
            self.end(actor, "is killed after its commit")

    def end(self, actor: Actor, how: str) -> None:
        """End the actor's process, whatever it was doing, and begin another one later."""
        self.note(f"{actor.process.name} {how}")
        self._by_process.pop(actor.process, None)
        actor.process.kill()
        broker, swallows = actor.broker, self.chance.random() < 0.3
        if swallows:
            broker.swallow()
        self.servers.call_later(self.chance.choice((0.0, 0.1, 3.0)) * self.chance.random(), broker.sever)
        pause_s = self.chance.choice((0.05, 1.0, 20.0)) * self.chance.random()
        self.loop.harness.call_later(pause_s, actor.start)

    def enter(self, actor: Actor, process: Process) -> Wire:
        """Connect a new process."""
        self._by_process[process] = actor
        return Wire(process, self.servers, self.faults, lambda: self._kill_after_commit(process))

    def connect(self, wire: Wire) -> tuple[SimulatedStore, SimulatedBroker]:
        """Return a process's own store and broker."""
        return SimulatedStore(wire, self.database), SimulatedBroker(wire, self.queues)

    def _freeze(self) -> None:
        """SIGSTOP, and SIGCONT some time later; the broker may have noticed in between."""
        actor = self.chance.choice(self.actors)
        process, broker = actor.process, actor.broker
        if process not in self._by_process or process.is_frozen:
            return
        pause_s = self.chance.choice((0.5, 15.0, 60.0)) * self.chance.random()
        self.note(f"{process.name} is frozen for {pause_s:.1f} s")
        process.is_frozen = True
        self.doubted.add(process.name)
        if pause_s > 10.0:
            self.servers.call_later(pause_s / 2, broker.cut_consumers)
        self.loop.harness.call_later(pause_s, self._thaw, process)

    def _thaw(self, process: Process) -> None:
        if process.is_alive and process.is_frozen:
            self.note(f"{process.name} goes on")
            process.is_frozen = False

    def _cut(self) -> None:
        """A connection to the broker is lost: what it held is delivered again."""
        actor = self.chance.choice(self.actors)
        if actor.process in self._by_process:
            self.note(f"{actor.process.name} loses its consumers")
            self.doubted.add(actor.process.name)
            self.servers.context.copy().run(actor.broker.cut_consumers)

    def _jump(self) -> None:
        """Somebody sets the store's clock: forward by up to hours, backward by up to minutes."""
        by_s = self.chance.choice((20.0, 600.0, 6 * 3600.0, -1.0, -20.0, -300.0)) * self.chance.random()
        self.note(f"the store's clock jumps by {by_s:.1f} s")
        self.clock.offset_s += by_s
        self._set_back_s += max(0.0, -by_s)
        self.doubted |= {actor.process.name for actor in self.actors}

    def _stop(self) -> None:
        """SIGTERM: a worker is asked to leave."""
        actor = self.chance.choice(self.actors)
        if actor.process in self._by_process and isinstance(actor, WorkerActor):
            self.note(f"{actor.process.name} is asked to stop")
            actor.stop(grace_s=3.0 * self.chance.random())

    # The calm

    async def _calm(self) -> None:
        """Let everything come to its end."""
        self.is_storm = False
        self.faults.calm()
        self.note("the storm is over")
        for process in list(self._by_process):
            self._thaw(process)
        until_s = self.loop.now_s + CALM_MAX_S + self._set_back_s
        until_step = self.loop.steps + CALM_STEPS_MAX
        while self._unfinished():
            await asyncio.sleep(1.0)
            self._look_for_unheard()
            self._release_quarantined()
            if self.loop.now_s > until_s or self.loop.steps > until_step:
                self.fail("not finished in time:\n" + "\n".join(self._unfinished()[:8]))
                await asyncio.sleep(1.0)

    def _unfinished(self) -> list[str]:
        waiting = [f"{e.kind} {sorted(e.run_ids)} was not answered" for e in self.errands if not e.is_done]
        return [self.watch.describe(run) for run in self.watch.open_runs()] + waiting

    def _release_quarantined(self) -> None:
        for one in self.watch.open_runs():
            if one.parked == "quarantine":
                self.faults.counts["quarantined"] += 1
                self.database.append("operator", [Append(run=one.ref, mark=Unpark())])

    # Watching

    def _on_append(self, who: str, batch: Sequence[Append], answers: Sequence[Appended]) -> None:
        """Judge what was just written, and note who has let its lease run out."""
        said = self.watch.look()
        now = self.clock()
        for worker in self.twin.worker_rows.values():
            if worker.alive_until.timestamp() <= now:
                self.doubted.add(worker.worker_id)
        fates = [
            f"{answer.run.run_id}:{'' if answer.fate is None else answer.fate.value}"
            f"{[verdict.value for verdict in answer.verdicts]}"
            for answer in answers
        ]
        self.note(f"{who} appends {len(batch)}: {'; '.join(said) or 'nothing'} -> {' '.join(fates)}")
        for request, answer in zip(batch, answers, strict=True):
            if request.start is not None and request.moves is not None:
                fate = "" if answer.fate is None else answer.fate.value
                self.watch.counts[f"first moves {fate}"] += 1

    def _on_unhandled(self, _loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        problem = context.get("exception")
        words = "".join(traceback.format_exception(problem)) if isinstance(problem, BaseException) else ""
        self.fail(f"nobody handled: {context.get('message')} {words}")

    def _look_for_unheard(self, for_s: float = UNHEARD_MAX_S) -> None:
        for process, problem in self.loop.unheard(for_s):
            words = "".join(traceback.format_exception(problem))
            self.fail(f"a task of {process.name} ended with an error that nobody looks at: {words}")

    def _report(self) -> Report:
        counts = self.faults.counts + self.effects.counts + self.watch.counts
        return Report(
            seed=self.seed,
            steps=self.loop.steps,
            virtual_s=self.loop.now_s,
            trace=self.loop.trace.hexdigest(),
            errands=len(self.errands),
            runs=len(self.watch.runs),
            counts=counts,
        )

    def _story(self) -> str:
        repeat = f"python -m tests.simulation --seed {self.seed} --steps {self.steps}"
        return "\n".join([*self.lines, "", f"FAILED: {self.failure}", f"Again: {repeat}"])


class _ErrorsAreFailures(logging.Handler):
    """A worker or keeper that logs an error met something nobody has thought of."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        """Stop the world."""
        problem = "" if record.exc_info is None else "".join(traceback.format_exception(*record.exc_info))
        self._world.fail(f"logged: {record.getMessage()} {problem}")


def simulate(seed: int, steps: int, **options: Any) -> Report:
    """Run one world, or raise ``SimulationFailed`` with the end of its trace and how to do it again."""
    return World(seed, steps, **options).run()
