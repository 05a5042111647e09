"""``SyncClient``: the same verbs, blocking, for code that has no event loop of its own.

One thread in the background runs an event loop with an ordinary ``Client`` in it; every verb is that
client's verb, waited for. So it may be used from any thread, from several at once, and where an event
loop is running, which it then blocks. Each process has its own: see ``per_process``. Messages go through
kombu, whatever the broker: over AMQP confirmed, from a pool of connections.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, overload

from tidewheel.broker.opening import open_kombu_broker
from tidewheel.broker.protocol import Broker
from tidewheel.journal.events import Entry
from tidewheel.journal.public import PublicEvent
from tidewheel.journal.run_request import RunRequest
from tidewheel.journal.snapshot import RunSnapshot
from tidewheel.sdk.client import Client
from tidewheel.sdk.client_store import is_nearby
from tidewheel.sdk.durations import Duration
from tidewheel.sdk.handle import Handle
from tidewheel.sdk.loop_thread import LoopThread
from tidewheel.sdk.per_process import LocalClient, PerProcess
from tidewheel.sdk.settings import ConnectionSettings
from tidewheel.store.protocol import Store
from tidewheel.store.records import RunRecord

R = TypeVar("R")


class SyncClient:
    """``Client`` for blocking code: the same verbs, from any thread."""

    def __init__(self, clients: PerProcess) -> None:
        """Use *clients*. ``connect`` and ``lazy`` are how users make one."""
        self._clients = clients

    @classmethod
    def connect(
        cls,
        store: str | Store | None = None,
        broker: str | Broker | None = None,
        namespace: str | None = None,
    ) -> Self:
        """Connect as ``Client.connect`` does."""
        clients = _clients(store, broker, namespace)
        try:
            clients.here().call(_nothing)
        except BaseException:
            clients.close()
            raise
        return cls(clients)

    @classmethod
    def lazy(cls, store: str | None = None, broker: str | None = None, namespace: str | None = None) -> Self:
        """Return a client that connects when it is first used, in each process anew.

        This is for a module of a web application: importing it touches nothing, and servers may fork as
        they like. The environment is read when it connects; ``connect`` reads it at once, and refuses what
        can never work.
        """
        return cls(_clients(store, broker, namespace))

    def close(self) -> None:
        """Let go of everything; whoever waits for a result is told. May be called twice."""
        self._clients.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return "<SyncClient>"

    @property
    def namespace(self) -> str:
        """The namespace whose runs this client sees."""

        async def namespace(client: Client) -> str:
            return client.namespace

        return self._clients.here().call(namespace)

    def listen(self) -> bool:
        """As ``Client.listen``."""
        return self._clients.here().call(Client.listen)

    @overload
    def start(
        self,
        workflow: Callable[..., Awaitable[R]],
        *args: Any,
        run_id: str | None = ...,
        idempotency_key: str | None = ...,
        queue: str | None = ...,
        request: RunRequest | None = ...,
    ) -> SyncHandle[R]: ...
    @overload
    def start(
        self,
        workflow: str,
        *args: Any,
        run_id: str | None = ...,
        idempotency_key: str | None = ...,
        queue: str | None = ...,
        request: RunRequest | None = ...,
    ) -> SyncHandle[Any]: ...
    def start(self, workflow: Any, *args: Any, **options: Any) -> SyncHandle[Any]:
        """As ``Client.start``."""
        here = self._clients.here()
        handle = here.call(lambda client: client.start(workflow, *args, **options))
        return SyncHandle(handle, here.thread)

    @overload
    def publish_start(
        self,
        workflow: Callable[..., Awaitable[R]],
        *args: Any,
        run_id: str | None = ...,
        queue: str | None = ...,
    ) -> SyncHandle[R]: ...
    @overload
    def publish_start(
        self, workflow: str, *args: Any, run_id: str | None = ..., queue: str | None = ...
    ) -> SyncHandle[Any]: ...
    def publish_start(self, workflow: Any, *args: Any, **options: Any) -> SyncHandle[Any]:
        """As ``Client.publish_start``."""
        here = self._clients.here()
        handle = here.call(lambda client: client.publish_start(workflow, *args, **options))
        return SyncHandle(handle, here.thread)

    def handle(self, run_id: str) -> SyncHandle[Any]:
        """As ``Client.handle``."""

        async def handle(client: Client) -> Handle[Any]:
            return client.handle(run_id)

        here = self._clients.here()
        return SyncHandle(here.call(handle), here.thread)

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
        return self._clients.here().call(
            lambda client: client.runs(
                workflow=workflow,
                status=status,
                open_only=open_only,
                parked_only=parked_only,
                limit=limit,
                before=before,
            )
        )


def _clients(store: str | Store | None, broker: str | Broker | None, namespace: str | None) -> PerProcess:
    """Return the clients of these places, none of them connected yet."""

    async def connect() -> Client:
        return await Client.connect(store, broker, namespace, broker_opener=open_kombu_broker)

    def survives_fork(before: Sequence[LocalClient]) -> bool:
        if not isinstance(store, str | None) or not isinstance(broker, str | None):
            return False
        settings = ConnectionSettings.from_environment(store=store, broker=broker)
        used = [settings.broker]
        if any(client.has_used_store for client in before):
            used.append(settings.store)
        return not any(is_nearby(url) for url in used)

    return PerProcess(connect, survives_fork=survives_fork)


async def _nothing(_: Client) -> None:
    """Be called, which connects."""


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
