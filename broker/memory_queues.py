"""The queues behind the memory broker: places, deadlines, dead letters, routes.

A message keeps its place for as long as it is in one queue, so giving it back puts it where it
was. Deadlines are looked at whenever somebody looks, and by one timer when nobody does.
"""

from __future__ import annotations

import asyncio
import bisect
import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tidewheel.broker.message import DELIVERED_TOO_OFTEN, EXPIRED, KEY, Message, dead_letter
from tidewheel.broker.routing import check_declaration, key_matches
from tidewheel.broker.topology import Binding, Exchange, Queue, Topology

#: A timer never comes sooner than this: with a clock that stands still it would spin.
TIMER_MIN_S = 0.001
#: Deadlines of what is long gone are thrown out when they outnumber the others this much.
STALE_DEADLINES_MAX = 256


@dataclass(slots=True, eq=False)
class Waiting:
    """A message in a queue or in somebody's hands; *place* is its rank, *due_s* when it expires."""

    message: Message
    key: str
    place: int
    due_s: float | None
    deliveries: int = 0


@dataclass(slots=True, eq=False)
class MemoryQueue:
    """A queue: what waits, by place; who consumes; who of them is idle, the longest first."""

    declared: Queue
    used_at_s: float
    waiting: list[Waiting] = field(default_factory=list)
    consumers: dict[Callable[[], None], None] = field(default_factory=dict)
    idle: dict[Callable[[], None], None] = field(default_factory=dict)
    gone: bool = False


class _Deadline(NamedTuple):
    """Something to look at then: a message that waits, or the queue itself."""

    due_s: float
    order: int
    queue: MemoryQueue
    waiting: Waiting | None

    def holds(self) -> bool:
        """Tell whether there is still something to look at."""
        if self.queue.gone or self.waiting is None:
            return not self.queue.gone
        return _place_of(self.waiting, self.queue) >= 0


class MemoryQueues:
    """All queues, exchanges and bindings of one memory broker."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.by_name: dict[str, MemoryQueue] = {}
        self._exchanges: dict[str, Exchange] = {}
        self._bindings: dict[Binding, None] = {}
        self._now = now
        self._counter = itertools.count()
        self._deadlines: list[_Deadline] = []
        self._stale_limit = STALE_DEADLINES_MAX
        self._timer: asyncio.TimerHandle | None = None
        self._timer_loop: asyncio.AbstractEventLoop | None = None
        self._timer_due_s: float | None = None

    def declare(self, topology: Topology) -> None:
        """Make sure that all of *topology* exists; all is checked before anything is changed."""
        check_declaration(
            topology,
            exchanges=self._exchanges,
            queues={name: queue.declared for name, queue in self.by_name.items()},
        )
        self._exchanges.update({exchange.name: exchange for exchange in topology.exchanges})
        for declared in topology.queues:
            queue = self.by_name.setdefault(declared.name, MemoryQueue(declared, self._now()))
            self._touch(queue)
        self._bindings.update(dict.fromkeys(topology.bindings))

    def route(self, exchange: str, keys: Sequence[str]) -> list[MemoryQueue]:
        """Return the queues that take any of *keys*, each once."""
        if not exchange:
            return [self.by_name[key] for key in dict.fromkeys(keys) if key in self.by_name]
        if exchange not in self._exchanges:
            return []
        kind = self._exchanges[exchange].type
        names = [
            binding.queue
            for binding in self._bindings
            if binding.exchange == exchange and any(key_matches(kind, binding.key, key) for key in keys)
        ]
        return [self.by_name[name] for name in dict.fromkeys(names)]

    def put(self, queue: MemoryQueue, message: Message, key: str) -> None:
        """Append *message*, published under *key*, with the nearer of the queue's and its own deadline."""
        lives = [ttl for ttl in (queue.declared.ttl_s, message.expires_s) if ttl is not None]
        due_s = self._now() + min(lives) if lives else None
        self._insert(queue, Waiting(message, message.headers.get(KEY, key), next(self._counter), due_s))

    def take(self, queue: MemoryQueue) -> Waiting:
        """Hand out the first message, which counts as a delivery."""
        waiting = queue.waiting.pop(0)
        waiting.deliveries += 1
        return waiting

    def give_back(self, queue: MemoryQueue, waiting: Waiting) -> None:
        """Put a message back to its place, unless it was delivered as often as it may be."""
        limit = queue.declared.delivery_limit
        if limit is not None and waiting.deliveries >= limit:
            self.bury(queue, waiting, DELIVERED_TOO_OFTEN)
        elif not queue.gone:
            self._insert(queue, waiting)

    def bury(self, queue: MemoryQueue, waiting: Waiting, reason: str) -> None:
        """Move a message that is in no queue now to the dead letters, if *queue* has any."""
        target = self.by_name.get(queue.declared.dead_letter_queue or "")
        if target is not None and not queue.gone:
            dead = dead_letter(waiting.message, reason=reason, queue=queue.declared.name, key=waiting.key)
            self.put(target, dead, waiting.key)

    def join(self, queue: MemoryQueue, wake: Callable[[], None]) -> None:
        """Note a consumer, known by how to *wake* it: a queue with consumers does not expire."""
        queue.consumers.setdefault(wake)

    def leave(self, queue: MemoryQueue, wake: Callable[[], None]) -> None:
        """Forget a consumer. Its turn passes to the next, and an unused queue begins to expire."""
        queue.consumers.pop(wake, None)
        queue.idle.pop(wake, None)
        self._touch(queue)
        for other in list(queue.idle):
            other()

    @staticmethod
    def may_take(queue: MemoryQueue, wake: Callable[[], None]) -> bool:
        """Tell whether this consumer is given messages now; of those of a single one, who came first."""
        return not queue.declared.single_consumer or next(iter(queue.consumers), None) == wake

    def delete(self, name: str) -> None:
        """Remove a queue with its messages and bindings, and tell its consumers."""
        queue = self.by_name.pop(name, None)
        if queue is None:
            return
        queue.gone = True
        queue.waiting.clear()
        self._bindings = {binding: None for binding in self._bindings if binding.queue != name}
        for wake in list(queue.idle):
            wake()

    def sweep(self) -> None:
        """Do what is due: bury expired messages, delete expired queues, set the timer again."""
        now_s = self._now()
        due: list[_Deadline] = []
        # All that is due is taken first: a dead letter may be due again at once, but next time.
        while self._deadlines and self._deadlines[0].due_s <= now_s:
            due.append(heapq.heappop(self._deadlines))
        for deadline in due:
            if not deadline.holds():
                continue
            if deadline.waiting is None:
                self._expire_queue(deadline.queue, now_s)
            else:
                del deadline.queue.waiting[_place_of(deadline.waiting, deadline.queue)]
                self.bury(deadline.queue, deadline.waiting, EXPIRED)
        self._set_timer()

    def _insert(self, queue: MemoryQueue, waiting: Waiting) -> None:
        bisect.insort(queue.waiting, waiting, key=lambda other: other.place)
        if waiting.due_s is not None:
            self._watch(waiting.due_s, queue, waiting)
        for wake in list(queue.idle):
            wake()

    def _touch(self, queue: MemoryQueue) -> None:
        queue.used_at_s = self._now()
        if queue.declared.expires_s is not None:
            self._watch(queue.used_at_s + queue.declared.expires_s, queue, None)

    def _expire_queue(self, queue: MemoryQueue, now_s: float) -> None:
        expires_s = queue.declared.expires_s
        if expires_s is not None and not queue.consumers and queue.used_at_s + expires_s <= now_s:
            self.delete(queue.declared.name)

    def _watch(self, due_s: float, queue: MemoryQueue, waiting: Waiting | None) -> None:
        heapq.heappush(self._deadlines, _Deadline(due_s, next(self._counter), queue, waiting))
        if len(self._deadlines) > self._stale_limit:
            self._deadlines = [deadline for deadline in self._deadlines if deadline.holds()]
            heapq.heapify(self._deadlines)
            self._stale_limit = 2 * len(self._deadlines) + STALE_DEADLINES_MAX
        self._set_timer()

    def _set_timer(self) -> None:
        """Let the running loop look when the next deadline comes."""
        loop = asyncio.get_running_loop()
        due_s = self._deadlines[0].due_s if self._deadlines else None
        if self._timer is not None and self._timer_loop is loop:
            if self._timer_due_s == due_s:
                return
            self._timer.cancel()
        self._timer, self._timer_loop, self._timer_due_s = None, loop, due_s
        if due_s is not None:
            self._timer = loop.call_later(max(due_s - self._now(), TIMER_MIN_S), self._timer_rang)

    def _timer_rang(self) -> None:
        self._timer = None
        self.sweep()


def _place_of(waiting: Waiting, queue: MemoryQueue) -> int:
    """Return the index of *waiting* in *queue*, or -1."""
    at = bisect.bisect_left(queue.waiting, waiting.place, key=lambda other: other.place)
    return at if at < len(queue.waiting) and queue.waiting[at] is waiting else -1
