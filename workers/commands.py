"""Commands from anybody: starts, signals and cancels that came as messages.

A command is followed once what it asks for is committed; only then is it acknowledged, so that a worker that
dies leaves it to another. Followed twice, it changes nothing: a start by its run's id, a signal by its
request's id. What cannot be followed, now or later, is a dead letter with the reason, and holds up nobody.

A start of a workflow that this worker has, for a queue it serves, is not hinted at: the run is begun here,
and its first turn is written with its start (``opening``).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Callable

import msgspec

from tidewheel.broker.commands import CancelCommand, Command, SignalCommand, StartCommand, read_command
from tidewheel.broker.errors import PoisonMessage
from tidewheel.broker.protocol import Delivery
from tidewheel.journal.errors import InvalidRequest, TidewheelError
from tidewheel.journal.ids import check_name, check_run_id
from tidewheel.sdk import payload
from tidewheel.sdk.door import check_any_run_id, check_key, check_text, signal_key
from tidewheel.sdk.starting import DEFAULT_QUEUE
from tidewheel.store.append import Append, Await, Cancelled, Fact, Signalled, Start, Verdict
from tidewheel.store.records import RunRef
from tidewheel.workers.opening import Opening
from tidewheel.workers.services import Services
from tidewheel.workers.session import Session

logger = logging.getLogger("tidewheel.workers")


class Commands:
    """Follows commands; *session_of* gives the session of a run of this worker's namespace."""

    def __init__(self, services: Services, session_of: Callable[[RunRef], Session]) -> None:
        self._services = services
        self._session_of = session_of

    async def take(self, delivery: Delivery) -> None:
        """Follow a command; a start that is begun here goes on next to everything else."""
        try:
            command = read_command(delivery.message.body)
            append = self._append_of(command, delivery)
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
        definition = None
        if command.namespace == self._services.namespace:
            definition = self._services.app.workflows.get(name)
        if definition is not None:
            # What cannot be read as the declared types would fail the run at its first activation.
            payload.decode_args(definition.hints, given)
        start = Start(
            workflow=name,
            version="" if definition is None else definition.version,
            digest="" if definition is None else definition.digest,
            queue=command.queue or (definition and definition.queue) or DEFAULT_QUEUE,
            input=given,
            idempotency_key=command.idempotency_key,
        )
        run_id = check_run_id(command.run_id) if command.run_id is not None else _run_id(command, delivery)
        mark = (
            None
            if command.reply_to is None
            else Await(reply_to=check_text(command.reply_to, "reply_to", 255))
        )
        return Append(run=RunRef(command.namespace, run_id), start=start, mark=mark)

    # Following

    def _begins_here(self, append: Append, delivery: Delivery) -> bool:
        """Begin a run here, if this worker has its code and knows nothing of it; tell whether it does."""
        services, start = self._services, append.start
        assert start is not None
        if (
            delivery.earlier_deliveries
            or not services.config.opens
            or not start.digest
            or start.idempotency_key is not None
            or start.queue not in services.config.queues
        ):
            return False
        session = self._session_of(append.run)
        if not session.is_empty():
            return False
        reply_to = append.mark.reply_to if isinstance(append.mark, Await) else None
        session.open(delivery, Opening(start, reply_to))
        return True

    async def _follow(self, delivery: Delivery, append: Append) -> None:
        """Commit what is asked for, and wake whom it concerns."""
        services = self._services
        try:
            answer = await services.append(append)
        except TidewheelError as problem:
            logger.warning("a command waits for the store, and is given back: %s", problem)
            await asyncio.sleep(services.config.pause_s)
            await services.settle(delivery.release())
            return
        refused = _refused(append, answer.verdicts, is_mismatch=answer.mismatch)
        if refused is not None:
            await self._bury(delivery, refused)
        else:
            services.acknowledge(delivery)

    async def _bury(self, delivery: Delivery, reason: str) -> None:
        logger.warning("a command is a dead letter: %s", reason)
        await self._services.settle(delivery.bury(reason))


def _to_run(command: SignalCommand | CancelCommand, fact: Fact) -> Append:
    return Append(run=RunRef(command.namespace, check_any_run_id(command.run_id)), facts=(fact,))


def _refused(append: Append, verdicts: list[Verdict], *, is_mismatch: bool) -> str | None:
    """Say why a command was not followed, if it was not."""
    run_id = append.run.run_id
    if is_mismatch:
        return f"run {run_id!r} is there already, with another workflow or input"
    if Verdict.UNKNOWN in verdicts:
        return f"there is no run {run_id!r} in namespace {append.run.namespace!r}"
    if Verdict.ENDED in verdicts and isinstance(append.facts[0], Signalled):
        return f"run {run_id!r} has ended, and takes no signals"
    return None


def _own_id(delivery: Delivery) -> str:
    """Return what tells a message from others. One without an id is another one each time it comes."""
    return delivery.message.message_id or secrets.token_hex(16)


def _run_id(command: StartCommand, delivery: Delivery) -> str:
    """Return the id of a run that was given none: the same each time its command is followed."""
    request = command.request_id or _own_id(delivery)
    digest = hashlib.sha256(msgspec.json.encode([command.namespace, command.workflow, request]))
    return f"{command.workflow}-{digest.hexdigest()[:32]}"
