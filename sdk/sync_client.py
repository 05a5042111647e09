"""``SyncClient``: the same verbs, blocking, for code that has no event loop of its own.

One thread in the background runs an event loop with an ordinary ``Client`` in it; every verb is that
client's verb, waited for. So it may be used from any thread, from several at once, and where an event
loop is running, which it then blocks. It is not carried over a fork: connect in the new process.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, overload

from tidewheel.broker.protocol import Broker
from tidewheel.journal.errors import InvalidRequest
from tidewheel.journal.events import Entry
from tidewheel.journal.public import PublicEvent
from tidewheel.journal.snapshot import RunSnapshot
from tidewheel.sdk.client import Client
from tidewheel.sdk.durations import Duration
from tidewheel.sdk.handle import Handle
from tidewheel.store.protocol import Store
from tidewheel.store.records import RunRecord

R = TypeVar("R")
T = TypeVar("T")

#: How long closing waits for the thread to end.
CLOSE_TIMEOUT_S = 10.0

_CLOSED = "this client was closed; connect another one"


class LoopThread:
    """An event loop in a thread of its own, to which other threads hand coroutines."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._process = os.getpid()
        self._open = True
        self._lock = threading.Lock()
        # A process that ends without closing its client must not hang.
        self._thread = threading.Thread(target=self._run, name="tidewheel-client", daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run *work* in the loop and wait for it. Being interrupted, as by Ctrl-C, cancels it."""
        try:
            future = self._submitted(work)
        except BaseException:
            work.close()
            raise
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise InvalidRequest(_CLOSED) from None
        except BaseException:
            future.cancel()
            raise

    def _submitted(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        problem = self._unusable()
        if problem is not None:
            raise InvalidRequest(problem)
        with self._lock:  # so that nothing is handed over to a loop that is about to stop
            if not self._open:
                raise InvalidRequest(_CLOSED)
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """End the loop and its thread. May be called twice."""
        if os.getpid() != self._process:
            return  # the thread stayed in the process that was forked
        with self._lock:
            if not self._open:
                return
            self._open = False
            self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_TIMEOUT_S)

    @property
    def is_usable(self) -> bool:
        """Whether work can be handed over, from here and now."""
        return self._open and self._unusable() is None

    def _unusable(self) -> str | None:
        if os.getpid() != self._process:
            return "this client was connected before a fork; connect another one in this process"
        if threading.current_thread() is self._thread:
            return "a SyncClient cannot be used in its own thread: it would wait for itself; use Client there"
        return None

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            _cancel_all(self._loop)
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what is still running, and let it end."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))


class SyncClient:
    """``Client`` for blocking code: the same verbs, from any thread."""

    def __init__(self, client: Client, thread: LoopThread) -> None:
        """Use *client*, which lives in *thread*. ``connect`` is how users make one."""
        self._client = client
        self._thread = thread

    @classmethod
    def connect(
        cls,
        store: str | Store | None = None,
        broker: str | Broker | None = None,
        namespace: str | None = None,
    ) -> Self:
        """Connect as ``Client.connect`` does."""
        thread = LoopThread()
        try:
            return cls(thread.call(Client.connect(store, broker, namespace)), thread)
        except BaseException:
            thread.close()
            raise

    def close(self) -> None:
        """Let go of everything; whoever waits for a result is told. May be called twice."""
        try:
            if self._thread.is_usable:
                self._thread.call(self._client.close())
        finally:
            self._thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<SyncClient of namespace {self.namespace!r}>"

    @property
    def namespace(self) -> str:
        """The namespace whose runs this client sees."""
        return self._client.namespace

    def listen(self) -> bool:
        """As ``Client.listen``."""
        return self._thread.call(self._client.listen())

    @overload
    def start(
        self,
        workflow: Callable[..., Awaitable[R]],
        *args: Any,
        run_id: str | None = ...,
        idempotency_key: str | None = ...,
        queue: str | None = ...,
    ) -> SyncHandle[R]: ...
    @overload
    def start(
        self,
        workflow: str,
        *args: Any,
        run_id: str | None = ...,
        idempotency_key: str | None = ...,
        queue: str | None = ...,
    ) -> SyncHandle[Any]: ...
    def start(self, workflow: Any, *args: Any, **options: Any) -> SyncHandle[Any]:
        """As ``Client.start``."""
        return SyncHandle(self._thread.call(self._client.start(workflow, *args, **options)), self._thread)

    def handle(self, run_id: str) -> SyncHandle[Any]:
        """As ``Client.handle``."""
        return SyncHandle(self._client.handle(run_id), self._thread)

    def runs(
        self,
        *,
        workflow: str | None = None,
        status: str | None = None,
        open_only: bool = False,
        parked_only: bool = False,
        limit: int = 50,
        before: bytes | None = None,
    ) -> list[RunRecord]:
        """As ``Client.runs``."""
        listing = self._client.runs(
            workflow=workflow,
            status=status,
            open_only=open_only,
            parked_only=parked_only,
            limit=limit,
            before=before,
        )
        return self._thread.call(listing)


class SyncHandle(Generic[R]):
    """``Handle`` for blocking code: one run, seen from outside."""

    def __init__(self, handle: Handle[R], thread: LoopThread) -> None:
        self._handle = handle
        self._thread = thread
        #: As ``Handle.existed``.
        self.existed = handle.existed
        #: As ``Handle.mismatch``.
        self.mismatch = handle.mismatch

    def __repr__(self) -> str:
        return f"<SyncHandle {self.run_id}>"

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._handle.run_id

    def result(self, timeout: Duration | None = None) -> R:
        """As ``Handle.result``."""
        return self._thread.call(self._handle.result(timeout))

    def status(self) -> str:
        """As ``Handle.status``."""
        return self._thread.call(self._handle.status())

    def describe(self) -> RunSnapshot:
        """As ``Handle.describe``."""
        return self._thread.call(self._handle.describe())

    def journal(self) -> list[Entry]:
        """As ``Handle.journal``."""
        return self._thread.call(self._handle.journal())

    def events(self) -> list[PublicEvent]:
        """As ``Handle.events``."""
        return self._thread.call(self._handle.events())

    def state(self) -> dict[str, Any]:
        """As ``Handle.state``."""
        return self._thread.call(self._handle.state())

    def signal(self, name: str, payload: Any = None, *, request_id: str | None = None) -> None:
        """As ``Handle.signal``."""
        self._thread.call(self._handle.signal(name, payload, request_id=request_id))

    def cancel(self, reason: str | None = None) -> None:
        """As ``Handle.cancel``."""
        self._thread.call(self._handle.cancel(reason))

    def resolve(self, promise: str, value: Any = None) -> None:
        """As ``Handle.resolve``."""
        self._thread.call(self._handle.resolve(promise, value))

    def reject(self, promise: str, message: str) -> None:
        """As ``Handle.reject``."""
        self._thread.call(self._handle.reject(promise, message))
