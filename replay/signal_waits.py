"""Who waits for which signal, and who gets the next delivery.

A delivery goes to the oldest live waiter of its name when its turn comes. One that is
already there when the code asks is taken at once, unless somebody older waits for it.
"""

from __future__ import annotations

from collections import defaultdict, deque

from tidewheel.journal import events as ev
from tidewheel.replay.history import History
from tidewheel.replay.promise import Promise


class SignalWaits:
    """The open signal waits of one execution."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._by_name: defaultdict[str, deque[Promise]] = defaultdict(deque)
        #: The waits by their paths, oldest first; some may be over.
        self.open: dict[str, Promise] = {}

    def add(self, promise: Promise, name: str) -> None:
        """*promise* waits for a signal of *name* from now on."""
        self._by_name[name].append(promise)
        self.open[promise.path] = promise

    def oldest(self, name: str) -> Promise | None:
        """The live waiter that a delivery of *name* belongs to."""
        waiters = self._by_name.get(name)
        while waiters and waiters[0].done():
            waiters.popleft()
        return waiters[0] if waiters else None

    def is_buffered(self, name: str) -> bool:
        """Tell whether a delivery of *name* is there and belongs to nobody yet."""
        return bool(self._history.deliveries.get(name)) and self.oldest(name) is None

    def receive(self, promise: Promise, name: str) -> ev.SignalReceived:
        """Bind the oldest delivery of *name* to *promise*."""
        delivery = self._history.deliveries[name].popleft()
        self._history.facts[promise.path] = ev.Result(ok=delivery.payload)
        self._history.settled_by[promise.path] = ev.SignalReceived
        return ev.SignalReceived(
            promise_id=promise.path,
            signal_name=name,
            payload=delivery.payload,
            delivery_id=delivery.delivery_id,
            n=promise.command.n,
        )

    def due(self) -> list[tuple[int, str]]:
        """The deliveries that somebody waits for: when each arrived, and its signal's name."""
        if not self._by_name:
            return []
        return [
            (self._history.delivered_at(delivery), name)
            for name in list(self._by_name)
            if self._history.deliveries.get(name) and self.oldest(name) is not None
            for delivery in self._history.deliveries[name]
        ]

    def open_waits(self) -> list[ev.SignalWait]:
        """Every wait that is still open, oldest first."""
        self.open = {path: promise for path, promise in self.open.items() if not promise.done()}
        return [
            ev.SignalWait(promise_id=path, signal_name=promise.signal_name, n=promise.command.n)
            for path, promise in self.open.items()
            if promise.signal_name is not None
        ]

    def clear(self) -> None:
        """Forget all."""
        self._by_name.clear()
        self.open.clear()
