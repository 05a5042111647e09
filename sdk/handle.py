"""``Handle``: one run, seen from outside.

Writing goes through the client's connection: committed first, hinted at after. Reading always
reads the store. How ``result`` waits is in ``ending``; that a run is there is only checked when
something is asked of it.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar, cast

from tidewheel.journal import events as ev
from tidewheel.journal.ids import check_name
from tidewheel.journal.public import PublicEvent, published
from tidewheel.journal.remembering import remembered
from tidewheel.journal.snapshot import RunSnapshot, snapshot_of
from tidewheel.sdk import payload as payloads
from tidewheel.sdk.connection import Connection
from tidewheel.sdk.door import check_text, signal_key
from tidewheel.sdk.durations import Duration, seconds
from tidewheel.sdk.ending import Ending, not_found
from tidewheel.sdk.errors import AlreadyResolved, NotFound, RunCancelled, RunFailed, SignalRejected
from tidewheel.store.append import Append, Cancelled, Fact, Resolved, Signalled, Verdict
from tidewheel.store.records import RunRecord

R = TypeVar("R")


class Handle(Generic[R]):
    """One run, seen from outside. Made by a client."""

    def __init__(
        self,
        connection: Connection,
        run_id: str,
        *,
        returns: Any = Any,
        existed: bool = False,
        mismatch: bool = False,
        is_awaited: bool = False,
        is_published: bool = False,
    ) -> None:
        """Look at the run *run_id*, whose result is of the type *returns*.

        *is_awaited*: the store was told already that this client wants to know when it ends. *is_published*:
        it was started by a message, and may not be there yet.
        """
        self._connection = connection
        self._ref = connection.ref(run_id)
        self._returns = returns
        self._ending = Ending(
            connection, self._ref, is_awaited=is_awaited, is_new=not existed, is_published=is_published
        )
        #: The run was there already; also where the store's first answer to this very start was lost.
        self.existed = existed
        #: The run was there already, and was started with another workflow or input.
        self.mismatch = mismatch

    def __repr__(self) -> str:
        return f"<Handle {self.run_id}>"

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._ref.run_id

    # Reading

    async def result(self, timeout: Duration | None = None) -> R:
        """Wait until the run ends, at most *timeout*, and return its result.

        Raises ``RunFailed`` or ``RunCancelled`` where it ended so, ``TimeoutError`` where it goes on, and
        ``NotFound``. A run that is parked, as one whose code no longer fits, has not ended: a fixed deploy
        may mend it, so waiting goes on and says so in the log.
        """
        self._connection.check_usable()
        self._connection.check_store()  # not only where the first look comes before the reply
        limit_s = None if timeout is None else max(0.0, seconds(timeout, "result(timeout=)"))
        match await self._ending.wait(limit_s):
            case ev.ExecutionCompleted(result=result):
                value = payloads.decode(result.ok, self._returns, where=f"result of {self.run_id}")
                return cast("R", value)
            case ev.ExecutionFailed(error=error):
                raise RunFailed(self.run_id, error)
            case ev.ExecutionCancelled(reason=reason):
                raise RunCancelled(self.run_id, reason)
            case other:
                raise AssertionError(other)

    async def status(self) -> str:
        """The run's status in the contract's words: RUNNING, COMPLETED and so on."""
        return (await self._record()).status

    async def describe(self) -> RunSnapshot:
        """The run and its steps as one value, folded from the journal; ``snapshot.to_json`` is its JSON."""
        return snapshot_of(await self.journal(), self.run_id)

    async def journal(self) -> list[ev.Entry]:
        """The run's journal so far."""
        self._connection.check_usable()
        entries = await (await self._connection.store()).journal(self._ref)
        if entries is None:
            raise not_found(self._ref)
        return entries

    async def events(self) -> list[PublicEvent]:
        """The public events of the run so far."""
        return published(await self.journal(), self.run_id, self._ref.namespace)

    async def state(self) -> dict[str, Any]:
        """What the run remembers in ``ctx.state``, as JSON; continuing as new takes it along."""
        return remembered(await self._segment())

    # Writing

    async def signal(self, name: str, payload: Any = None, *, request_id: str | None = None) -> None:
        """Send a signal; it is kept until the code asks for it.

        A caller that may send the same signal again, as after a crash of its own, gives it a *request_id*:
        the run gets it once. Raises ``SignalRejected`` where the run has ended.
        """
        check_name(name, "signal")
        data = payloads.encode(payload, where="payload")
        self._connection.limits.check_signal(data, f"the payload of signal {name!r}")
        key = signal_key(self._connection.token() if request_id is None else request_id)
        await self._tell(Signalled(name=name, payload=data, key=key), f"signal {name!r}")

    async def cancel(self, reason: str | None = None) -> None:
        """Ask the run to stop; asking again, or after its end, changes nothing."""
        if reason is not None:
            check_text(reason, "reason", self._connection.limits.signal_max_bytes)
        await self._write(Cancelled(reason=reason))

    async def resolve(self, promise: str, value: Any = None) -> None:
        """Resolve the promise of this name with *value*. Raises ``AlreadyResolved``."""
        check_name(promise, "promise")
        data = payloads.encode(value, where="value")
        self._connection.limits.check_payload(data, f"the value of promise {promise!r}")
        await self._settle(promise, ev.Result(ok=data))

    async def reject(self, promise: str, message: str) -> None:
        """Reject the promise of this name: the code gets ``StepFailed``. Raises ``AlreadyResolved``."""
        check_name(promise, "promise")
        check_text(message, "message", self._connection.limits.signal_max_bytes)
        await self._settle(promise, ev.Result(error=ev.Error(type="Rejected", message=message)))

    async def _settle(self, name: str, result: ev.Result) -> None:
        key = f"resolve={self._connection.token()}"
        await self._tell(Resolved(name=name, result=result, key=key), f"promise {name!r}")

    async def _tell(self, fact: Signalled | Resolved, what: str) -> None:
        """Write *fact*, or say why the run cannot take it."""
        match await self._write(fact):
            case Verdict.WRITTEN | Verdict.DUPLICATE:
                return
            case Verdict.ENDED:
                ended = (await self._record()).status
                raise SignalRejected(f"run {self.run_id} cannot take {what}: it has ended ({ended})")
            case Verdict.RESOLVED:
                raise AlreadyResolved(f"{what} of run {self.run_id} was resolved before")
            case Verdict.UNKNOWN:
                known = ", ".join(sorted(await self._promises())) or "none"
                raise NotFound(f"run {self.run_id} has no {what}; it has: {known}")
            case Verdict.LATE as verdict:
                raise AssertionError(verdict)

    async def _write(self, fact: Fact) -> Verdict:
        answer = await self._connection.append(Append(run=self._ref, facts=(fact,)))
        (verdict,) = answer.verdicts
        if verdict is Verdict.UNKNOWN and not isinstance(fact, Resolved):
            raise not_found(self._ref)
        return verdict

    # What is there

    async def _record(self) -> RunRecord:
        self._connection.check_usable()
        record = await (await self._connection.store()).find(self._ref)
        if record is None:
            raise not_found(self._ref)
        return record

    async def _segment(self) -> list[ev.Entry]:
        """Return the current segment of the journal."""
        self._connection.check_usable()
        loaded = await (await self._connection.store()).load(self._ref)
        if loaded is None:
            raise not_found(self._ref)
        return loaded.entries

    async def _promises(self) -> set[str]:
        events = [entry.event for entry in await self._segment()]
        return {event.name for event in events if isinstance(event, ev.PromiseCreated)}
