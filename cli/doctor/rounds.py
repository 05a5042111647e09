"""The doctor's rounds: every open run is looked at, once.

A run is read as an activation reads it: its row, its current segment, and all of its open steps and timers. A
run whose journal cannot be read is a finding, and the others are looked at.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections import Counter
from collections.abc import Sequence
from typing import Final

from tidewheel.broker.errors import BrokerUnavailable, Unroutable
from tidewheel.broker.work_items import RunHint, to_workers
from tidewheel.cli.connecting import Link
from tidewheel.cli.doctor.findings import Report
from tidewheel.cli.runs.starting import unserved
from tidewheel.cli.runs.words import having, mend, parked_reason
from tidewheel.cli.timeline.text import counted, duration
from tidewheel.store.append import Append, Park, Unpark
from tidewheel.store.errors import Unreadable
from tidewheel.store.protocol import Loaded
from tidewheel.store.records import RunRecord, RunRef, StepRecord, WorkerRecord
from tidewheel.store.wakeups import Surroundings, Wakeup, outside_waits, own_wakeups, wakeups

#: What is due for longer than this was not taken up by any keeper.
OVERDUE: Final = dt.timedelta(seconds=10)
#: A hint that was repeated so often is not followed by anybody.
HINTS_MAX: Final = 4
#: Steps, or runs, that a sentence names.
NAMED_MAX: Final = 3


class Rounds:
    """Looks at open runs, one after the other, and notes what is wrong with them."""

    def __init__(
        self,
        link: Link,
        report: Report,
        alive: Sequence[WorkerRecord],
        registered: Sequence[WorkerRecord],
        now: dt.datetime,
        *,
        fix: bool,
    ) -> None:
        self._link = link
        self._report = report
        self._alive = list(alive)
        self._registered = frozenset(worker.worker_id for worker in registered)
        self._now = now
        self._fix = fix
        self._wakers: Counter[str] = Counter()
        self._unserved: Counter[str] = Counter()
        #: How late what is overdue is, the run it is of, and what should have happened.
        self._overdue: list[tuple[dt.timedelta, str, str]] = []
        #: Runs whose journal was found to be unreadable.
        self.unreadable: set[str] = set()
        self.open = 0
        #: Every queue that an open run or a worker uses.
        self.queues = {"default", *(queue for worker in registered for queue in worker.queues)}

    async def look_at(self, run: RunRecord) -> None:
        """Look at one open run."""
        self.open += 1
        self.queues.add(run.queue)
        self._look_at_parking(run)
        self._look_at_hints(run)
        try:
            await self._look_at_wakeups(run)
        except Unreadable as problem:
            self._found_unreadable(run, problem)

    async def _look_at_wakeups(self, run: RunRecord) -> None:
        loaded = await self._link.store.load(run.ref)
        if loaded is None or loaded.run.ended:
            return
        self._look_at_steps(loaded)
        known = own_wakeups(run) or await self._wakeups(loaded)
        if known:
            self._wakers.update({wakeup.waker for wakeup in known})
        else:
            await self._found_forgotten(loaded)

    def sum_up(self) -> None:
        """Say what was looked at, and what concerns many runs at once."""
        wakers = ", ".join(f"{count:,} by {waker}" for waker, count in sorted(self._wakers.items()))
        self._report.say(
            "wake-ups", f"{counted(self.open, 'open run')}" + (f"; woken {wakers}" if wakers else "")
        )
        self._report.say("due", f"{len(self._overdue):,} overdue")
        self._tell_overdue()
        for problem, count in sorted(self._unserved.items()):
            message = f"{counted(count, 'open run')}: {problem}"
            self._report.find("workers", message, "start a worker whose app has it, on that queue")

    # One run

    def _look_at_parking(self, run: RunRecord) -> None:
        if run.parked is not None:
            message = f"run {run.run_id} is parked ({run.parked}): {parked_reason(run)}"
            advice = mend(run)
            if run.parked == "needs_version":
                advice += f"; {having(run, self._alive)}"
            self._report.find("parked", message, advice, run_id=run.run_id)
            return
        problem = unserved(run.workflow, run.queue, self._alive) if self._alive else None
        if problem is not None:
            self._unserved[problem] += 1

    def _look_at_hints(self, run: RunRecord) -> None:
        if run.wake_at is None:
            return
        late = self._now - run.wake_at
        if late > OVERDUE:
            self._overdue.append((late, run.run_id, f"run {run.run_id} should have been hinted at"))
        elif run.hints >= HINTS_MAX:
            message = f"run {run.run_id} was hinted at {run.hints} times, and no worker took it up"
            advice = (
                f"see that a worker with workflow {run.workflow!r} serves queue {run.queue!r}, and its log"
            )
            self._report.find("hints", message, advice, run_id=run.run_id)

    def _look_at_steps(self, loaded: Loaded) -> None:
        run = loaded.run
        for timer in loaded.timers:
            if loaded.now - timer.fire_at > OVERDUE:
                late = loaded.now - timer.fire_at
                what = f"timer {timer.path} of run {run.run_id} should have fired"
                self._overdue.append((late, run.run_id, what))
        for step in loaded.steps:
            called = f"step {step.path} ({step.function_name}) of run {run.run_id}"
            if step.state == "parked" and not step.abandoned:
                message = f"{called} failed {counted(step.attempt, 'time')} and waits for an operator"
                advice = (
                    f"see `tidewheel run show {run.run_id}`; `tidewheel run cancel {run.run_id}` gives it up"
                )
                self._report.find("steps", message, advice, run_id=run.run_id)
            elif step.due_at is not None and loaded.now - step.due_at > OVERDUE:
                what = f"{called} should have been looked at"
                self._overdue.append((loaded.now - step.due_at, run.run_id, what))
            elif step.hints >= HINTS_MAX and step.state == "scheduled":
                message = f"{called} was hinted at {step.hints} times, and no worker took it up"
                advice = f"see that a worker that has it serves queue {step.queue!r}"
                self._report.find("hints", message, advice, run_id=run.run_id)

    def _tell_overdue(self) -> None:
        """Note all that is overdue at once: it has one cause."""
        if not self._overdue:
            return
        advice = "no keeper seems to be running: start `tidewheel keeper`, or `tidewheel up APP`"
        late, run_id, what = max(self._overdue)
        run_ids = tuple(dict.fromkeys(run_id for _, run_id, _ in sorted(self._overdue, reverse=True)))
        if len(run_ids) == 1:
            message = f"{what} {duration(late.total_seconds())} ago"
            self._report.find("due", message, advice, run_id=run_id)
            return
        named = ", ".join(run_ids[:NAMED_MAX]) + (", ..." if len(run_ids) > NAMED_MAX else "")
        message = (
            f"{len(run_ids):,} runs are overdue, the oldest by {duration(late.total_seconds())}: {named}"
        )
        self._report.find("due", message, advice, run_ids=run_ids)

    def _found_unreadable(self, run: RunRecord, problem: Unreadable) -> None:
        self.unreadable.add(run.run_id)
        if run.parked == "unreadable":  # that is told already
            return
        advice = (
            "this run cannot go on, others are not concerned; get the row back from a backup of the store, "
            f"see that `tidewheel journal verify {run.run_id}` is content, "
            f"then `tidewheel run unpark {run.run_id}`"
        )
        self._report.find("journals", str(problem), advice, run_id=run.run_id)

    # Wake-ups

    async def _wakeups(self, loaded: Loaded) -> list[Wakeup]:
        """Return who owes the run its next activation."""
        children = [step for step in loaded.steps if step.kind == "workflow"]
        around = Surroundings(
            steps=loaded.steps,
            timers=loaded.timers,
            outside=outside_waits(loaded.entries),
            alive=loaded.alive,
            registered=self._registered,
            open_children=frozenset(
                [step.path for step in children if await self._is_open(loaded.run, step)]
            ),
        )
        found = wakeups(loaded.run, around)
        if found:
            return found
        # Its children were looked at later than the run itself, which may have gone on meanwhile.
        again = await self._link.store.find(loaded.run.ref)
        if again is None or again.ended or again.last_seq != loaded.run.last_seq:
            return [Wakeup("worker", "it goes on right now")]
        return own_wakeups(again)

    async def _is_open(self, parent: RunRecord, step: StepRecord) -> bool:
        root = parent.run_id.partition(":")[0]
        child = await self._link.store.find(RunRef(parent.namespace, f"{root}:{step.path}"))
        return child is not None and not child.ended

    async def _found_forgotten(self, loaded: Loaded) -> None:
        run = loaded.run
        message = (
            f"run {run.run_id} ({run.workflow}, {run.status}) would never go on: "
            f"it has {_has(loaded)}, and nobody owes it a wake-up"
        )
        if self._fix:
            await wake(self._link, run)
        advice = "`tidewheel doctor --fix` wakes it; it is a bug, so please report it with its journal"
        self._report.find("wake-ups", message, advice, run_id=run.run_id, fixed=self._fix)


async def wake(link: Link, run: RunRecord) -> None:
    """Owe *run* an activation, whatever its row says: parking and unparking it in one commit does that."""
    park = Append(run=run.ref, mark=Park(kind="quarantine", reason="woken by tidewheel doctor"))
    await link.store.append([park, Append(run=run.ref, mark=Unpark())])
    hint = RunHint(namespace=run.namespace, run_id=run.run_id)
    with contextlib.suppress(BrokerUnavailable, Unroutable):  # the keeper publishes it again
        await link.broker.publish([to_workers(hint, run.queue)])


def _has(loaded: Loaded) -> str:
    """Say what the run has open."""
    named = [f"step {step.path} {step.state}" for step in loaded.steps[:NAMED_MAX]]
    more = " and more" if len(loaded.steps) > NAMED_MAX else ""
    return ", ".join(named) + more if named else "no open step or timer"
