"""Who owes an open run its next activation. Pure: whoever asks brings the rows.

An open run of which nobody can say this would wait for ever: a bug, or rows that were lost. The
sources, of which one is enough:

* the run's own ``wake_at``: the keeper publishes its hint again;
* a timer, which whoever armed it fires, else the keeper;
* a step that a live worker has, or that the keeper will look at: at its ``due_at``, or when it looks for
  workers whose lease has run out and for owners that are not registered;
* a child run that is open: its end wakes its parent;
* the limit of its queue: whoever finds room there admits it;
* somebody outside: a signal, a promise, an operator for what is parked, paused or not admitted.

A step that the code gave up on wakes nobody.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Literal, TypeAlias

import msgspec

from tidewheel.journal.events import (
    Entry,
    ExecutionAwaiting,
    ExecutionResumed,
    ExecutionStarted,
    PromiseCreated,
    PromiseResolved,
    SignalDelivered,
)
from tidewheel.journal.status import WAITING_ROOM, Phase
from tidewheel.store.records import RunRecord, StepRecord, TimerRecord

Waker: TypeAlias = Literal["keeper", "timer", "worker", "child", "signal", "promise", "operator"]


class Wakeup(msgspec.Struct, frozen=True):
    """One source: who it is, and what of the run it is about."""

    waker: Waker
    what: str


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What is known beside the run's own row; ``outside`` is what ``outside_waits`` found.

    ``alive`` are workers whose lease holds, ``registered`` those that were not given up;
    ``open_children`` are the paths of child runs that have not ended.
    """

    steps: Sequence[StepRecord] = ()
    timers: Sequence[TimerRecord] = ()
    outside: Sequence[Wakeup] = ()
    alive: Collection[str] = ()
    registered: Collection[str] = ()
    open_children: Collection[str] = ()


def own_wakeups(run: RunRecord) -> list[Wakeup]:
    """Return the sources that the run's row alone tells of: where there is one, nothing else need be read."""
    return list(_of_row(run))


def wakeups(run: RunRecord, around: Surroundings) -> list[Wakeup]:
    """Return every source of an open run; none means that nobody would ever wake it."""
    assert not run.ended, f"{run.run_id} has ended"
    found = list(_of_row(run))
    if run.owner is not None and run.owner not in around.alive:
        found.append(Wakeup("keeper", f"its owner {run.owner} is not there any more"))
    found += [Wakeup("timer", f"timer {timer.path}") for timer in around.timers]
    found += [wakeup for step in around.steps if (wakeup := _of_step(step, around)) is not None]
    return [*found, *around.outside]


def _of_row(run: RunRecord) -> Iterator[Wakeup]:
    if run.parked is not None:
        yield Wakeup("operator", f"the run is parked ({run.parked})")
    if run.paused:
        yield Wakeup("operator", "the run is paused")
    if run.place == "queued":
        yield Wakeup("keeper", "the run is queued, and will be admitted")
    elif Phase(run.phase) in WAITING_ROOM:
        yield Wakeup("operator", "the run was not admitted yet")
    if run.wake_at is not None:
        yield Wakeup("keeper", "a hint to its workers")


def _of_step(step: StepRecord, around: Surroundings) -> Wakeup | None:
    """Return who will see to *step*, None if nobody will."""
    called = f"step {step.path} ({step.function_name})"
    if step.abandoned:
        return None
    if step.state == "parked":
        return Wakeup("operator", f"{called} is parked")
    if step.kind == "workflow" and step.path in around.open_children:
        return Wakeup("child", f"child run {step.path} ({step.function_name})")
    if step.owner is not None and step.owner in around.alive:
        return Wakeup("worker", f"{called} is with {step.owner}")
    if step.due_at is not None or (step.owner is not None and step.owner in around.registered):
        return Wakeup("keeper", called)
    return None


def outside_waits(entries: Iterable[Entry]) -> list[Wakeup]:
    """Return what the run whose journal ends with *entries* waits for from the outside world.

    Only what was asked for and has not come counts: a signal that was delivered after the run was
    suspended, or a promise that was resolved, is owed to the run by somebody inside.
    """
    waiting: ExecutionAwaiting | None = None
    promises: dict[str, str] = {}
    delivered: set[str] = set()
    for entry in entries:
        match entry.event:
            case ExecutionAwaiting() as event:
                waiting, delivered = event, set()
            case ExecutionResumed() | ExecutionStarted():
                waiting = None
            case SignalDelivered(signal_name=name):
                delivered.add(name)
            case PromiseCreated(promise_id=path, name=name):
                promises[path] = name
            case PromiseResolved(promise_id=path):
                promises.pop(path, None)
            case _:
                pass
    if waiting is None:
        return []
    signals = {wait.signal_name for wait in waiting.signals}
    if isinstance(waiting.signal_name, str):
        signals.add(waiting.signal_name)
    # A suspension on very many promises lists only the first of them.
    awaited = promises.keys() if waiting.truncated is True else promises.keys() & set(waiting.waiting_on)
    return [
        *(Wakeup("signal", f"signal {name!r}") for name in sorted(signals - delivered)),
        *(Wakeup("promise", f"promise {promises[path]!r}") for path in sorted(awaited)),
    ]
