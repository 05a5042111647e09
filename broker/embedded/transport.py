"""The kombu transport over a file of queues.

``kombu.Connection(transport="tidewheel.broker.embedded.transport:Transport",
transport_options={"path": "queues.db"})``. What kombu's own virtual transports leave out is here:
messages of a dead process come back, a released one to its place; delivery limits, dead letters
and expiry work; a mandatory message that no queue takes is an error.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

from kombu.transport import virtual

from tidewheel.broker.embedded.channel import SWEEP_S, Channel
from tidewheel.broker.embedded.queue_file import QueueFile
from tidewheel.broker.embedded.wakeups import listen, stop_listening

# Not typed here: see ``channel``.
VirtualTransport: Any = virtual.Transport


class Transport(VirtualTransport):  # type: ignore[misc]  # as said above
    """Connects kombu to a file of queues: ``transport_options={"path": ...}``."""

    Channel = Channel
    driver_type = "tidewheel"
    driver_name = "sqlite3"
    connection_errors = (*VirtualTransport.connection_errors, sqlite3.Error)
    #: SQLite has waited and tried by itself: kombu need not try again, for ever.
    recoverable_connection_errors = ()
    implements = VirtualTransport.implements.extend(exchange_type=frozenset({"direct", "topic", "fanout"}))

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        self._path = Path(client.transport_options["path"]).absolute()
        self._bell = threading.Event()
        self._interrupted = False
        self._look_at_s = 0.0

    def open_file(self) -> QueueFile:
        """Return a connection to the file, for one channel."""
        return QueueFile(self._path, pages_max=self.client.transport_options.get("pages_max"))

    def interrupt(self) -> None:
        """Make ``drain_events`` return soon, from any thread."""
        self._interrupted = True
        self._bell.set()

    def close_connection(self, connection: Any) -> None:
        """Close all channels, which gives back what they hold."""
        stop_listening(self._path, self._bell)
        super().close_connection(connection)

    def drain_events(self, _: Any, timeout: float | None = None) -> None:
        """Deliver what waits; else wait until something does, or raise ``TimeoutError``."""
        listen(self._path, self._bell)
        until_s = None if timeout is None else time.monotonic() + timeout
        while True:
            # First the bell, then the look: what comes in between rings again.
            self._bell.clear()
            now_s = time.monotonic()
            if now_s >= self._look_at_s:
                self._look_at_s = now_s + SWEEP_S
                for channel in list(self.channels):
                    channel.keep_house()
            if sum(channel.deliver() for channel in list(self.channels)):
                return
            interrupted, self._interrupted = self._interrupted, False
            if interrupted or (until_s is not None and now_s >= until_s):
                raise TimeoutError
            self._bell.wait(min(self._look_at_s, until_s or self._look_at_s) - now_s)
