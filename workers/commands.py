"""Commands from anybody: starts, signals and cancels that came as messages.

A command is followed once what it asks for is committed; only then is it acknowledged, so that a worker that
dies leaves it to another. Followed twice, it changes nothing: a start by its run's id, a signal by its
request's id. What cannot be followed, now or later, is a dead letter with the reason, and holds up nobody.
A store that is away is waited for: that says nothing against a command, however long it takes.

A start of a workflow that this worker has, for a queue it serves, is not hinted at: the run is begun here,
and its first turn is written with its start (``opening``).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import secrets
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from tidewheel.broker.commands import CancelCommand, Command, SignalCommand, StartCommand, read_command
from tidewheel.broker.errors import BrokerUnavailable, PoisonMessage, Unroutable
from tidewheel.broker.message import Message, again
from tidewheel.broker.protocol import Delivery
from tidewheel.broker.topology import reply_queue
from tidewheel.journal.errors import InvalidRequest
from tidewheel.journal.ids import SHOWN_MAX, check_name, check_run_id, check_version
from tidewheel.journal.run_request import key_of
from tidewheel.sdk import payload
from tidewheel.sdk.definitions import WorkflowDefinition
from tidewheel.sdk.door import KEY_MAX, check_any_run_id, check_key, check_text, signal_key
from tidewheel.sdk.starting import DEFAULT_QUEUE
from tidewheel.store.append import Append, Appended, Await, Cancelled, Fact, Signalled, Start, Verdict
from tidewheel.store.errors import CommitUnknown, StoreUnavailable
from tidewheel.store.records import RunRef
from tidewheel.telemetry import switch
from tidewheel.workers import telling
from tidewheel.workers.opening import Opening
from tidewheel.workers.services import Services
from tidewheel.workers.session import PAUSE_MAX_S, Session

logger = logging.getLogger("tidewheel.workers")

#: A delivery that is let go after so much of the time for which it may be held need not be done with.
LONG_HELD: Final = 0.9
#: The longest name that a queue can have.
REPLY_TO_MAX_BYTES: Final = 255


class Begun:
    """The delivery of a start that a session begins with; *follow* makes sure that it is written.

    A session lets go of what it has held for long, as while the store is away: losing a hint costs time only.
    A command is not let go like that, nor is one whose run was there with something else, or was refused.
    """

    def __init__(self, delivery: Delivery, long_s: float, follow: Callable[[], object]) -> None:
        self._delivery = delivery
        self._long_s = long_s
        self._follow = follow
        self._began_s = asyncio.get_running_loop().time()
        self._is_refused = False

    def answered(self, answer: Appended) -> None:
        """Hear what became of the start."""
        self._is_refused = answer.mismatch or answer.refused is not None

    @property
    def message(self) -> Message:
        """What was published."""
        return self._delivery.message

    @property
    def queue(self) -> str:
        """The queue it came from."""
        return self._delivery.queue

    @property
    def routing_key(self) -> str:
        """The key it was published under."""
        return self._delivery.routing_key

    @property
    def earlier_deliveries(self) -> int:
        """How often it was delivered before: 0 at first."""
        return self._delivery.earlier_deliveries

    async def acknowledge(self) -> None:
        """It is done with, unless it is only let go."""
        is_long = asyncio.get_running_loop().time() - self._began_s >= self._long_s
        if is_long or self._is_refused:
            self._follow()
        else:
            await self._delivery.acknowledge()

    async def release(self) -> None:
        """Give it back."""
        await self._delivery.release()

    async def bury(self, reason: str) -> None:
        """Make it a dead letter."""
        await self._delivery.bury(reason)


class Commands:
    """Follows commands; *session_of* gives the session of a run of this worker's namespace."""

    def __init__(self, services: Services, session_of: Callable[[RunRef], Session]) -> None:
        self._services = services
        self._session_of = session_of

    async def take(self, delivery: Delivery) -> None:
        """Follow a command; a start that is begun here goes on next to everything else."""
        try:
            command = read_command(delivery.message.body, delivery.routing_key)
            append = self._append_of(command, delivery)
            if switch.active is not None:
                append = replace(append, trace=telling.delivered(switch.active, append.run, delivery))
        except (PoisonMessage, InvalidRequest) as problem:
            await self._bury(delivery, str(problem))
            return
        if isinstance(command, StartCommand) and self._begins_here(append, delivery):
            return
        self._services.spawn(self._follow(delivery, append))

    # What is asked for

    def _append_of(self, command: Command, delivery: Delivery) -> Append:
        """Return what a command comes to, or raise ``InvalidRequest``."""
        check_name(command.namespace, "namespace")
        if command.request_id is not None:
            check_key(command.request_id, "request_id")
        match command:
            case StartCommand():
                return self._start_of(command, delivery)
            case SignalCommand(name=name, payload=data):
                check_name(name, "signal")
                self._services.limits.check_signal(data, f"the payload of signal {name!r}")
                key = signal_key(command.request_id or _own_id(delivery))
                return _to_run(command, Signalled(name=name, payload=data, key=key))
            case CancelCommand(reason=reason):
                if reason is not None:
                    check_text(reason, "reason", self._services.limits.signal_max_bytes)
                return _to_run(command, Cancelled(reason=reason))

    def _start_of(self, command: StartCommand, delivery: Delivery) -> Append:
        name, given = check_name(command.workflow, "workflow"), command.input
        if command.idempotency_key is not None:
            check_key(command.idempotency_key, "idempotency_key")
        if command.queue is not None:
            check_name(command.queue, "queue")
        limits = self._services.limits
        if not limits.is_small(given):
            limits.check_payload(given, f"the input of {name}")
        label = None if command.version is None else check_version(command.version)
        named = None
        if command.namespace == self._services.namespace:
            named = self._services.app.workflows.get(name)
        # Code of another label may take other arguments: that is for a worker that has it to say.
        definition = named if named is not None and label in (None, named.version) else None
        if definition is not None:
            _check_arguments(definition, given)
        start = Start(
            workflow=name,
            version=label or ("" if definition is None else definition.version),
            digest="" if definition is None else definition.digest,
            queue=command.queue or (named and named.queue) or DEFAULT_QUEUE,
            input=given,
            idempotency_key=key_of(command.request, command.idempotency_key),
        )
        run_id = check_run_id(command.run_id) if command.run_id is not None else _run_id(command, delivery)
        mark = None if command.reply_to is None else Await(reply_to=_check_reply_to(command.reply_to))
        return Append(run=RunRef(command.namespace, run_id), start=start, mark=mark)

    # Following

    def _begins_here(self, append: Append, delivery: Delivery) -> bool:
        """Begin a run here, if this worker has its code and knows nothing of it; tell whether it does."""
        start = append.start
        assert start is not None
        if (
            delivery.earlier_deliveries
            or not self._services.config.opens
            or start.idempotency_key is not None
            or not self._is_for_us(start)
        ):
            return False
        session = self._session_of(append.run)
        if not session.is_empty():
            return False
        reply_to = append.mark.reply_to if isinstance(append.mark, Await) else None
        begun = Begun(
            delivery,
            LONG_HELD * self._services.config.hold_s,
            lambda: self._services.spawn(self._follow(delivery, append)),
        )
        session.open(begun, Opening(start, reply_to, begun.answered))
        return True

    def _is_for_us(self, start: Start | None) -> bool:
        """Tell whether this worker has the code of a run, and serves its queue."""
        return start is not None and bool(start.digest) and start.queue in self._services.config.queues

    async def _follow(self, delivery: Delivery, append: Append) -> None:
        """Commit what is asked for, and wake whom it concerns."""
        services = self._services
        try:
            answer = await self._written(append)
        except Exception:  # whatever it is, the delivery must not stay in hand
            logger.exception("a command was not followed, and is given back")
            await asyncio.sleep(services.config.pause_s)
            await services.settle(delivery.release())
            return
        if answer is None:
            await self._put_back(delivery)
            return
        refused = _refused(append, answer)
        if refused is not None:
            await self._bury(delivery, refused)
        elif answer.existed and delivery.earlier_deliveries == 1 and self._is_for_us(append.start):
            # Whoever had this message before may have begun the run, and is gone: it is taken over at once.
            # If this worker dies too that may be the run's doing, which the keeper finds out by hints.
            self._session_of(answer.run).deliver(delivery)
        else:
            services.acknowledge(delivery)

    async def _written(self, append: Append) -> Appended | None:
        """Write; None if the store is away, and was for long or the worker is to stop."""
        config, stopping = self._services.config, self._services.stopping
        pause_s, waited_s = config.pause_s, 0.0
        while True:
            try:
                return await self._services.append(append)
            except (StoreUnavailable, CommitUnknown) as problem:
                if waited_s >= config.hold_s or stopping.is_set():
                    return None
                logger.warning("a command waits for the store: %s", problem)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await stopping.wait()
            waited_s += pause_s
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    async def _put_back(self, delivery: Delivery) -> None:
        """Give a command back as if it had just been published: that it had to wait is not its fault.

        A worker that is to stop only gives it back: it may not come to acknowledge it.
        """
        services = self._services
        if services.stopping.is_set():
            await services.settle(delivery.release())
            return
        try:
            fresh = again(delivery.message, key=delivery.routing_key, queue=delivery.queue)
            await services.broker.publish([fresh])
        except (BrokerUnavailable, Unroutable) as problem:
            logger.warning("a command is given back, and may be once too often: %s", problem)
            await services.settle(delivery.release())
        else:
            await services.settle(delivery.acknowledge())

    async def _bury(self, delivery: Delivery, reason: str) -> None:
        logger.warning("a command is a dead letter: %s", reason)
        await self._services.settle(delivery.bury(reason))


def _check_arguments(definition: WorkflowDefinition, given: list[Any]) -> None:
    """Refuse what cannot be read as the declared types: it would fail the run at its first activation."""
    try:
        payload.decode_args(definition.hints, given)
    except InvalidRequest:
        raise
    except Exception as problem:  # a type of the user's may raise anything
        raise InvalidRequest(
            f"the input of {definition.name} cannot be read: {type(problem).__name__}: {problem}"
        ) from problem


def _to_run(command: SignalCommand | CancelCommand, fact: Fact) -> Append:
    return Append(run=RunRef(command.namespace, check_any_run_id(command.run_id)), facts=(fact,))


def _refused(append: Append, answer: Appended) -> str | None:
    """Say why a command was not followed, if it was not."""
    run_id, verdicts = answer.run.run_id, answer.verdicts
    if answer.refused is not None:
        return answer.refused.told
    if answer.mismatch:
        return f"run {run_id!r} is there already, with another workflow or input"
    if Verdict.UNKNOWN in verdicts:
        return f"there is no run {run_id!r} in namespace {append.run.namespace!r}"
    if Verdict.ENDED in verdicts and isinstance(append.facts[0], Signalled):
        return f"run {run_id!r} has ended, and takes no signals"
    return None


def _check_reply_to(queue: str) -> str:
    """Return *queue* if it is a client's: nobody has workers write into other queues."""
    if not queue.startswith(reply_queue("")):
        shown = repr(queue)[:SHOWN_MAX]
        raise InvalidRequest(f"reply_to {shown} is no client's queue: those begin with {reply_queue('')!r}")
    return check_text(queue, "reply_to", REPLY_TO_MAX_BYTES)


def _own_id(delivery: Delivery) -> str:
    """Return what tells a message from others. One without an id is another one each time it comes."""
    own = delivery.message.message_id or secrets.token_hex(16)
    if len(own) <= KEY_MAX and own.isprintable():
        return own
    return hashlib.sha256(own.encode("utf-8", "surrogatepass")).hexdigest()


def _run_id(command: StartCommand, delivery: Delivery) -> str:
    """Return the id of a run that was given none: the same each time its command is followed."""
    request = command.request_id or _own_id(delivery)
    digest = hashlib.sha256(msgspec.json.encode([command.namespace, command.workflow, request]))
    return f"{command.workflow}-{digest.hexdigest()[:32]}"
