"""``Client``: starts runs and finds them again.

What a caller passes is checked here, at the door, before anything is written: names, ids, the number
and types of arguments, sizes. A start is committed in the store, then hinted at through the broker;
from the commit on the run is there, whatever happens to the hint.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import secrets
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from tidewheel.broker.commands import StartCommand
from tidewheel.broker.opening import BrokerOpener, open_broker
from tidewheel.broker.protocol import Broker
from tidewheel.journal.ids import check_name, check_run_id
from tidewheel.journal.run_request import RunRequest, key_of
from tidewheel.sdk.client_store import lacks_store
from tidewheel.sdk.connection import Connection
from tidewheel.sdk.door import check_any_run_id, check_page_size, check_status
from tidewheel.sdk.errors import Overloaded
from tidewheel.sdk.handle import Handle
from tidewheel.sdk.limits import Limits
from tidewheel.sdk.on_demand import OnDemand
from tidewheel.sdk.settings import ConnectionSettings
from tidewheel.sdk.starting import start_of
from tidewheel.sdk.store_settings import PostgresSettings
from tidewheel.sdk.telling import turn_on
from tidewheel.store.append import Append, Await
from tidewheel.store.opening import open_store
from tidewheel.store.protocol import RunFilter, Store
from tidewheel.store.records import RunRecord
from tidewheel.store.urls import parse_url

R = TypeVar("R")


class Client:
    """Starts runs and finds them again. Belongs to the event loop it was connected in.

    ``async with await Client.connect() as client`` closes it at the end of the block.
    """

    def __init__(self, connection: Connection, *, owned: contextlib.AsyncExitStack | None = None) -> None:
        """Use *connection*; *owned* is closed with the client. ``connect`` is how users make one."""
        self._connection = connection
        self._owned = owned or contextlib.AsyncExitStack()

    @classmethod
    async def connect(
        cls,
        store: str | Store | None = None,
        broker: str | Broker | None = None,
        namespace: str | None = None,
        *,
        limits: Limits | None = None,
        token_bytes: Callable[[int], bytes] = secrets.token_bytes,
        clock: Callable[[], float] = time.time,
        broker_opener: BrokerOpener = open_broker,
    ) -> Self:
        """Connect to *store* and *broker*: URLs, else ``TIDEWHEEL_*``, else the embedded default.

        Objects are used as they are and stay the caller's to close. What a URL names is connected to when
        a verb first needs it: ``publish_start`` and ``listen`` need the broker alone; all others need the
        store, and a broker that is away only makes them slower. *token_bytes* gives chance, *clock* the time
        until the store has told it; *broker_opener* opens the broker's URL.
        """
        turn_on("tidewheel-client")
        settings = ConnectionSettings.from_environment(
            store=store if isinstance(store, str) else None,
            broker=broker if isinstance(broker, str) else None,
            namespace=namespace,
        )
        limits = limits or Limits.from_environment()
        async with contextlib.AsyncExitStack() as opened:
            if store is None or isinstance(store, str):
                parse_url(settings.store)  # what can never be opened is refused now
                the_store = OnDemand(
                    lambda: _open(settings.store, connection.set_time), name="tidewheel-open-store"
                )
                opened.push_async_callback(_close, the_store)
                now = dt.datetime.fromtimestamp(clock(), dt.UTC)
            else:
                the_store, now = OnDemand.having(store), await store.now()
            if broker is None or isinstance(broker, str):
                the_broker = broker_opener(settings.broker, store_url=settings.store)
                opened.push_async_callback(the_broker.close)
            else:
                the_broker = broker
            connection = Connection(
                the_store,
                the_broker,
                settings.namespace,
                limits=limits,
                now=now,
                token_bytes=token_bytes,
                lacks_store=lacks_store(settings, store, broker),
            )
            return cls(connection, owned=opened.pop_all())

    async def close(self) -> None:
        """Let go of what ``connect`` opened; whoever waits for a result is told. May be called twice."""
        await self._connection.close()
        await self._owned.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Client of namespace {self.namespace!r}>"

    @property
    def namespace(self) -> str:
        """The namespace whose runs this client sees."""
        return self._connection.namespace

    @property
    def has_used_store(self) -> bool:
        """Whether the store was ever needed, and so may be open."""
        return self._connection.has_used_store

    async def listen(self) -> bool:
        """Be told when runs end, from now on; return whether that is possible.

        ``result`` does this by itself. A client that starts runs in order to wait for them may do it
        before: then each start says in the same write that its end is awaited.
        """
        self._connection.check_usable()
        return await self._connection.replies.listen()

    @overload
    async def start(
        self,
        workflow: Callable[..., Awaitable[R]],
        *args: Any,
        run_id: str | None = ...,
        idempotency_key: str | None = ...,
        queue: str | None = ...,
        request: RunRequest | None = ...,
    ) -> Handle[R]: ...
    @overload
    async def start(
        self,
        workflow: str,
        *args: Any,
        run_id: str | None = ...,
        idempotency_key: str | None = ...,
        queue: str | None = ...,
        request: RunRequest | None = ...,
    ) -> Handle[Any]: ...
    async def start(
        self,
        workflow: str | Callable[..., Any],
        *args: Any,
        run_id: str | None = None,
        idempotency_key: str | None = None,
        queue: str | None = None,
        request: RunRequest | None = None,
    ) -> Handle[Any]:
        """Start a run, or return the one that has this id or key already.

        By its function a workflow's arguments are checked here; by its name they are checked by the
        worker. ``handle.existed`` tells that the run was there, ``handle.mismatch`` that it was with another
        workflow or input. A *request* is a key too, made of the contract's six names. Raises
        ``InvalidRequest``, ``StoreUnavailable``, and ``Overloaded`` where the queue takes no more runs; then
        nothing was started.
        """
        self._connection.check_usable()
        key = key_of(request, idempotency_key)
        start, returns = start_of(
            workflow, args, idempotency_key=key, queue=queue, limits=self._connection.limits
        )
        if run_id is None:
            await self._connection.store()  # whose time the id tells
        chosen = self._connection.free_run_id(start.workflow) if run_id is None else check_run_id(run_id)
        replies = self._connection.replies
        mark = Await(reply_to=replies.queue) if replies.is_listening else None
        append = Append(run=self._connection.ref(chosen), start=start, mark=mark)
        answer = await self._connection.append(append)
        if answer.refused is not None:
            raise Overloaded(answer.refused.told, answer.refused.retry_after_s)
        return Handle(
            self._connection,
            answer.run.run_id,
            returns=returns,
            existed=answer.existed,
            mismatch=answer.mismatch,
            is_awaited=mark is not None,
        )

    @overload
    async def publish_start(
        self,
        workflow: Callable[..., Awaitable[R]],
        *args: Any,
        run_id: str | None = ...,
        queue: str | None = ...,
    ) -> Handle[R]: ...
    @overload
    async def publish_start(
        self, workflow: str, *args: Any, run_id: str | None = ..., queue: str | None = ...
    ) -> Handle[Any]: ...
    async def publish_start(
        self,
        workflow: str | Callable[..., Any],
        *args: Any,
        run_id: str | None = None,
        queue: str | None = None,
    ) -> Handle[Any]:
        """Start a run by a message: it is there once a worker has taken that.

        This needs the broker alone: no store is opened, and there need be none. It is cheaper than
        ``start``, since whoever takes the message writes the start together with the run's first steps;
        nothing is lost, since the broker keeps it until then. Raises ``InvalidRequest``, and
        ``BrokerUnavailable`` where the broker did not say that it has the message: with the same *run_id*
        it can be sent again.
        """
        self._connection.check_usable()
        start, returns = start_of(
            workflow, args, idempotency_key=None, queue=queue, limits=self._connection.limits
        )
        chosen = self._connection.free_run_id(start.workflow) if run_id is None else check_run_id(run_id)
        replies = self._connection.replies
        is_awaited = replies.is_listening
        command = StartCommand(
            workflow=start.workflow,
            input=start.input,
            run_id=chosen,
            queue=queue if isinstance(workflow, str) else start.queue,
            version=start.version or None,
            namespace=self.namespace,
            reply_to=replies.queue if is_awaited else None,
        )
        await self._connection.command(command)
        return Handle(self._connection, chosen, returns=returns, is_awaited=is_awaited, is_published=True)

    def handle(self, run_id: str) -> Handle[Any]:
        """Return a handle of a run, or of a child run such as ``order-42:1``; nothing is read yet."""
        self._connection.check_open()
        return Handle(self._connection, check_any_run_id(run_id))

    async def runs(
        self,
        *,
        workflow: str | None = None,
        status: str | None = None,
        open_only: bool = False,
        parked_only: bool = False,
        limit: int = 50,
        before: bytes | None = None,
    ) -> list[RunRecord]:
        """List runs, newest first; the next page is *before* the ``key`` of the last one of this."""
        self._connection.check_usable()
        which = RunFilter(
            namespace=self.namespace,
            workflow=None if workflow is None else check_name(workflow, "workflow"),
            status=None if status is None else check_status(status),
            open_only=open_only,
            parked_only=parked_only,
            limit=check_page_size(limit),
            before=before,
        )
        return await (await self._connection.store()).runs(which)


async def _open(url: str, tell_time: Callable[[dt.datetime], None]) -> Store:
    """Open the store at *url*, and let it tell the time."""
    store = await open_store(url, postgres=PostgresSettings.from_environment().config())
    try:
        tell_time(await store.now())
    except BaseException:
        await store.close()
        raise
    return store


async def _close(opened: OnDemand[Store]) -> None:
    """Close the store, if it was opened."""
    store = await opened.take()
    if store is not None:
        await store.close()
