"""A run in memory: its journal, and what the journal says is open."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from tidewheel.journal import events as ev
from tidewheel.journal.ids import PromiseId
from tidewheel.journal.status import RunState, advance, fold
from tidewheel.replay.execution import Entropy, Execution
from tidewheel.replay.violation import Violation
from tidewheel.sdk.definitions import WorkflowDefinition
from tidewheel.sdk.program import execution_of


@dataclass(slots=True)
class OpenStep:
    """A step that has no result yet."""

    event: ev.InvokeScheduled
    scheduled_at: dt.datetime
    #: How the last attempt failed; its ``retry_at`` is None where the step is parked.
    failed: ev.InvokeRetrying | None = None
    #: The attempt being executed, or the retry being waited for. Whatever else reports is late.
    doing: asyncio.Task[ev.Result] | Callable[[], None] | None = None

    @property
    def next_attempt(self) -> int:
        """The number of the attempt that comes next."""
        return 1 if self.failed is None else self.failed.failed_attempt + 1

    @property
    def is_parked(self) -> bool:
        """Whether it waits for an operator."""
        return self.failed is not None and self.failed.retry_at is None


class MemoryRun:
    """One run's journal, with the execution that may be kept beside it."""

    def __init__(
        self,
        run: PromiseId,
        definition: WorkflowDefinition,
        entropy: Entropy,
        *,
        parent: MemoryRun | None = None,
    ) -> None:
        self.id = run
        self.definition = definition
        self.parent = parent
        #: Its child runs that have not ended, by path.
        self.children: dict[str, MemoryRun] = {}
        #: The last delivery of each signal, in whichever segment.
        self.delivered: Counter[str] = Counter()
        self.entries: list[ev.Entry] = []
        self.state: RunState = fold([])
        self.parked: Violation | None = None
        #: What the current segment has open, by path.
        self.steps: dict[str, OpenStep] = {}
        self.timers: dict[str, ev.TimerScheduled] = {}
        self.promises: dict[str, ev.PromiseCreated] = {}
        self.resolved: set[str] = set()
        #: The open steps that nothing is done about: the code gave up on them.
        self.dropped: set[str] = set()
        self._entropy = entropy
        self._execution: Execution | None = None
        self._segment = 0
        self._first_position = 0

    @property
    def run_id(self) -> str:
        """The run's id as users see it."""
        return str(self.id)

    @property
    def terminal(self) -> ev.Event | None:
        """The event that ended the run, if it has ended."""
        last = self.entries[-1].event
        return last if isinstance(last, ev.TERMINAL) else None

    @property
    def started(self) -> ev.ExecutionStarted:
        """What the run began with."""
        first = self.entries[0].event
        assert isinstance(first, ev.ExecutionStarted)
        return first

    def append(self, event: ev.Event, at: dt.datetime) -> ev.Entry:
        """Write the next event."""
        entry = ev.Entry(len(self.entries), at, event)
        self.entries.append(entry)
        self.state = advance(self.state, event)
        self._index(event, at)
        return entry

    def _index(self, event: ev.Event, at: dt.datetime) -> None:
        match event:
            case ev.InvokeScheduled():
                self.steps[event.promise_id] = OpenStep(event, at)
            case ev.InvokeRetrying():
                self.steps[event.promise_id].failed = event
            case ev.InvokeCompleted():
                del self.steps[event.promise_id]
                self.dropped.discard(event.promise_id)
            case ev.TimerScheduled():
                self.timers[event.promise_id] = event
            case ev.TimerFired() | ev.TimerCancelled():
                self.timers.pop(event.promise_id, None)
            case ev.PromiseCreated():
                self.promises[event.name] = event
            case ev.PromiseResolved():
                self.resolved.add(event.promise_id)
            case ev.SignalDelivered():
                last = self.delivered[event.signal_name]
                self.delivered[event.signal_name] = max(last, event.delivery_id)
            case ev.ExecutionContinued():
                self._next_segment(event.next_position)
            case _:
                pass

    def _next_segment(self, first_position: int) -> None:
        self._segment = len(self.entries)
        self._first_position = first_position
        self.steps = {}  # not cleared: whoever closes the segment still has to stop what was open
        for open_ in (self.timers, self.promises, self.resolved, self.dropped):
            open_.clear()
        self.evict()

    def segment(self) -> list[ev.Entry]:
        """The entries of the current segment."""
        return self.entries[self._segment :]

    def execution(self) -> Execution:
        """The run's code: kept from before, or made anew from the journal."""
        if self._execution is None:
            self._execution = execution_of(
                self.definition, self.id, entropy=self._entropy, first_position=self._first_position
            )
            self._execution.load(self.segment())
        return self._execution

    def tell(self, entry: ev.Entry) -> None:
        """Pass a fact on to the execution, if one is kept."""
        if self._execution is not None:
            self._execution.load([entry])

    def evict(self) -> None:
        """Give up the execution."""
        if self._execution is not None:
            self._execution.evict()
            self._execution = None

    def is_evicted(self) -> bool:
        """Tell whether nothing is kept in memory."""
        return self._execution is None
