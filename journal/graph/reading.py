"""Reading a journal as nodes and activations; nothing here knows how they are drawn.

Nodes are the run's start, steps, timers, signals, promises, a cancellation and its end. What
does not fit is left out and never an error: ``rules`` says what is wrong with a journal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

from msgspec import UNSET

from tidewheel.journal import events as ev
from tidewheel.journal.status import NEW, Phase, advance

Kind: TypeAlias = Literal["border", "step", "child", "timer", "signal", "promise", "cancel"]
Look: TypeAlias = Literal["done", "retried", "failed", "pending", "dropped"]


@dataclass(slots=True, eq=False)
class Node:
    """One thing that happened: what it is, how it stands, and in words."""

    number: int
    kind: Kind
    name: str
    says: str = ""
    look: Look = "pending"
    path: str = ""
    notes: list[str] = field(default_factory=list)
    attempts: int = 0
    group: Group | None = None
    was_shown: bool = False


@dataclass(slots=True, eq=False)
class Group:
    """A join set; ``taken`` counts the results that the code has taken from it."""

    path: str
    members: list[Node] = field(default_factory=list)
    taken: int = 0


@dataclass(slots=True, eq=False)
class Activation:
    """What the code was shown now, what earlier without asking for anything, and what it asked for."""

    shown: list[Node] = field(default_factory=list)
    earlier: list[Node] = field(default_factory=list)
    asked: list[Node] = field(default_factory=list)


class RecordedRun:
    """Takes a journal event by event, then ``close``."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.activations: list[Activation] = []
        self._now = Activation()
        self._at: dict[str, Node] = {}
        self._groups: dict[str, Group] = {}
        self._arrived: list[Node] = []
        self._state = NEW

    def take(self, event: ev.Event) -> None:
        """Take in the next event."""
        self._state = advance(self._state, event)
        reader = self._READERS.get(type(event))
        if reader is not None:
            reader(self, event)

    def close(self) -> None:
        """Add where a run stands that has not ended, after what it waits for."""
        if self.nodes and not self._state.ended and self._state.phase is not Phase.CONTINUED:
            waiting = self._state.waiting
            paths = [] if waiting is None else waiting.waiting_on
            awaited = [self._at[path] for path in paths if path in self._at]
            if awaited:
                self._next([])
                self._now.earlier += awaited
            self._add("border", self._state.status, f"waits for {', '.join(paths)}" if paths else "")
        self._next([])

    def _started(self, event: ev.ExecutionStarted) -> None:
        says = "next segment" if self.nodes else "start"
        self._next([self._add("border", event.workflow or "run", says, "done")])

    def _resumed(self, event: ev.ExecutionResumed) -> None:
        """Begin an activation with the facts it names, or where it names none, those that arrived."""
        if event.applied is UNSET:
            facts = self._arrived
        else:
            facts = [self._at[path] for path in event.applied if path in self._at]
        self._next(facts)
        self._arrived = []

    def _scheduled(self, event: ev.InvokeScheduled) -> None:
        if event.logical_attempt > 1 and event.promise_id in self._at:
            return  # the same step, tried again
        named = event.key if event.kind == "operation" and event.key is not UNSET else event.function_name
        kind: Kind = "child" if event.kind == "workflow" else "step"
        node = self._add(kind, named or event.kind, "scheduled", path=event.promise_id)
        if event.kind != "function":
            node.notes.append("child run" if event.kind == "workflow" else event.kind)

    def _attempted(self, event: ev.InvokeStarted | ev.InvokeRetrying | ev.StepRetryRequested) -> None:
        node = self._at.get(event.promise_id)
        if node is None:
            return
        match event:
            case ev.InvokeStarted():
                node.attempts += 1
                node.says = "running"
            case ev.InvokeRetrying(retry_at=retry_at, error=error):
                node.look = "retried"
                node.says = f"{'parked' if retry_at is None else 'retrying'} after {error.type}"
            case ev.StepRetryRequested():
                node.says = "another try was asked for"

    def _settled(self, event: ev.InvokeCompleted | ev.StepSkipped | ev.PromiseResolved) -> None:
        node = self._at.get(event.promise_id)
        if node is None:
            return
        says = "resolved" if isinstance(event, ev.PromiseResolved) else "completed"
        if isinstance(event, ev.InvokeCompleted):
            node.attempts = max(node.attempts, event.attempt)
        elif isinstance(event, ev.StepSkipped):
            says = "skipped"
        look: Look = "retried" if node.look == "retried" or node.attempts > 1 else "done"
        if event.result.error is not UNSET:
            says, look = f"failed with {event.result.error.type}", "failed"
        self._arrives(node, says, look)

    def _timer(self, event: ev.TimerScheduled | ev.TimerFired | ev.TimerCancelled) -> None:
        match event:
            case ev.TimerScheduled(duration=duration):
                self._add("timer", f"timer {duration:g} s", "running", path=event.promise_id)
            case ev.TimerFired():
                self._arrives(self._at.get(event.promise_id), "fired", "done")
            case ev.TimerCancelled() if event.promise_id in self._at:
                node = self._at[event.promise_id]
                node.says, node.look = "cancelled", "dropped"
            case _:
                pass

    def _awaiting(self, event: ev.ExecutionAwaiting) -> None:
        for wait in event.signals:  # a wait for a signal has no event of its own
            if wait.promise_id not in self._at:
                self._add("signal", f"signal {wait.signal_name}", "not received", path=wait.promise_id)

    def _received(self, event: ev.SignalReceived) -> None:
        node = self._at.get(event.promise_id)
        if node is None:
            node = self._add("signal", f"signal {event.signal_name}", path=event.promise_id)
        self._arrives(node, "received", "done")

    def _promised(self, event: ev.PromiseCreated) -> None:
        self._add("promise", f"promise {event.name}", "open", path=event.promise_id)

    def _cancelling(self, event: ev.CancelRequested) -> None:
        node = self._add("cancel", "cancel requested", event.reason or "", "dropped")
        self._now.asked.remove(node)  # the code did not ask for it
        self._at[ev.CANCEL] = node
        self._arrived.append(node)

    def _grouped(self, event: ev.JoinSetSubmitted | ev.JoinSetAwaited) -> None:
        node = self._at.get(event.promise_id)
        group = self._groups.setdefault(event.join_set_id, Group(event.join_set_id))
        if node is None:
            return
        if isinstance(event, ev.JoinSetSubmitted):
            if node.group is None:
                node.group = group
                group.members.append(node)
        elif node.group is group:
            group.taken += 1
            node.notes.append(f"taken {group.taken}")

    def _ended(self, event: ev.Event) -> None:
        match event:
            case ev.ExecutionFailed(error=error):
                self._add("border", f"failed with {error.type}", error.message, "failed")
            case ev.ExecutionCancelled(reason=reason):
                self._add("border", "cancelled", reason or "", "dropped")
            case ev.ExecutionContinued():
                self._next([self._add("border", "continued as new", "", "done")])
            case _:
                self._add("border", "completed", "", "done")

    def _add(self, kind: Kind, name: str, says: str = "", look: Look = "pending", path: str = "") -> Node:
        node = Node(len(self.nodes), kind, name, says, look, path)
        self.nodes.append(node)
        self._now.asked.append(node)
        if path:
            self._at[path] = node
        return node

    def _arrives(self, node: Node | None, says: str, look: Look) -> None:
        if node is not None:
            node.says, node.look = says, look
            self._arrived.append(node)

    def _next(self, facts: list[Node]) -> None:
        """End the activation and begin one that shows *facts*; each is shown once."""
        done = self._now
        unanswered: list[Node] = []
        if done.asked:
            self.activations.append(done)
        else:
            unanswered = done.earlier
            unanswered += done.shown
        fresh = [node for node in dict.fromkeys(facts) if not node.was_shown]
        for node in fresh:
            node.was_shown = True
        self._now = Activation(fresh, unanswered)

    _READERS: ClassVar[dict[type[ev.Event], Callable[[Any, Any], None]]] = {
        ev.ExecutionStarted: _started,
        ev.ExecutionResumed: _resumed,
        ev.ExecutionAwaiting: _awaiting,
        ev.InvokeScheduled: _scheduled,
        ev.InvokeStarted: _attempted,
        ev.InvokeRetrying: _attempted,
        ev.StepRetryRequested: _attempted,
        ev.InvokeCompleted: _settled,
        ev.StepSkipped: _settled,
        ev.PromiseResolved: _settled,
        ev.TimerScheduled: _timer,
        ev.TimerFired: _timer,
        ev.TimerCancelled: _timer,
        ev.SignalReceived: _received,
        ev.PromiseCreated: _promised,
        ev.CancelRequested: _cancelling,
        ev.JoinSetSubmitted: _grouped,
        ev.JoinSetAwaited: _grouped,
        ev.ExecutionCompleted: _ended,
        ev.ExecutionFailed: _ended,
        ev.ExecutionCancelled: _ended,
        ev.ExecutionContinued: _ended,
    }
