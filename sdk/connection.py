"""What a client and its handles share: the store, the broker, and how a write is made.

The store is opened by the first verb that needs it: publishing a command does not.

A write is committed first and hinted at after. A hint that cannot be published is no error: the
run's row says that a wake-up is owed, and the keeper publishes it again. Hints of writes that were answered
together go together: one message to the broker each, one exchange with it for all. There is no thread, no
clock but the event loop's and no chance but *token_bytes* in here, so that a simulation can have all three.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Callable, Sequence
from functools import partial

from tidewheel.broker.commands import Command, publication_of_command
from tidewheel.broker.errors import Unroutable
from tidewheel.broker.message import Publication, address
from tidewheel.broker.protocol import Broker, Untaken
from tidewheel.broker.taking import check_taken
from tidewheel.broker.topology import commands_topology, is_for_a_client, work_topology
from tidewheel.journal.errors import InvalidRequest, TidewheelError
from tidewheel.sdk import telling
from tidewheel.sdk.hinting import publications
from tidewheel.sdk.limits import Limits
from tidewheel.sdk.on_demand import OnDemand
from tidewheel.sdk.replies import Replies
from tidewheel.store.append import Append, Appended
from tidewheel.store.errors import CommitUnknown, StoreUnavailable
from tidewheel.store.gathering import Gathering
from tidewheel.store.protocol import Store
from tidewheel.store.records import RunRef
from tidewheel.telemetry import switch
from tidewheel.telemetry.context import TraceContext

logger = logging.getLogger("tidewheel.client")

#: A commit whose reply was lost is repeated after these many seconds; then the caller is told.
REPEAT_PAUSES_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
#: A broker that takes longer than this to take a hint does not hold up the caller: the keeper gives it soon.
HINT_TIMEOUT_S = 2.0
#: One that failed is left alone for ten times as long as that took, at most this long: callers that come
#: meanwhile are not held up at all.
HINT_PAUSE_MAX_S = 5.0

#: Crockford's base 32, in lower case: sorts as the number does, and has no i, l, o, u.
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
#: Two digits of it at a time: half the work.
_PAIRS = tuple(high + low for high in _ALPHABET for low in _ALPHABET)
_TIME_DIGITS, _CHANCE_DIGITS = 9, 11


class _Group:
    """Answers whose hints are published together, and who waits for that."""

    __slots__ = ("answers", "waiting")

    def __init__(self) -> None:
        self.answers: list[Appended] = []
        self.waiting: list[asyncio.Future[None]] = []

    def release(self, bug: BaseException | None) -> None:
        """Let everybody go on, or see the *bug*."""
        for waiter in self.waiting:
            if waiter.done():
                continue  # it was cancelled
            if bug is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(bug)


class Connection:
    """One client's way to the store and the broker."""

    def __init__(
        self,
        store: OnDemand[Store],
        broker: Broker,
        namespace: str,
        *,
        limits: Limits,
        now: dt.datetime,
        token_bytes: Callable[[int], bytes],
        lacks_store: str | None = None,
    ) -> None:
        """Use a broker, and a *store* once it is needed; *now* is the time, by the store if that is open.

        *lacks_store* says why there is no store, if there is none.
        """
        self._store = store
        self._lacks_store = lacks_store
        self.broker = broker
        self.namespace = namespace
        self.limits = limits
        self._token_bytes = token_bytes
        self._loop = asyncio.get_running_loop()
        self.set_time(now)
        self.replies = Replies(broker, self.token())
        self._is_hinting = True
        #: The moment from which hints are worth trying.
        self._hint_from_s = 0.0
        #: The group that is published next, if there is one, and the tasks of all that are under way.
        self._gathering: _Group | None = None
        self._publishing: dict[asyncio.Task[None], None] = {}
        self._commands = Gathering(self._publish_commands)
        self._closed = False

    async def store(self) -> Store:
        """Return the store, opened now if nothing needed it before.

        Raises ``InvalidRequest`` where there is none, and what opening it raises.
        """
        self.check_store()
        try:
            return await self._store.get()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or not task.cancelling():
                self.check_open()  # it was closed while it was opened, and nobody cancelled the caller
            raise

    @property
    def has_used_store(self) -> bool:
        """Whether the store was ever needed, and so may be open."""
        return self._store.was_asked_for

    def set_time(self, now: dt.datetime) -> None:
        """Go by *now*, the time at this moment."""
        #: The time at the moment zero of the loop's clock.
        self._epoch_s = now.timestamp() - self._loop.time()

    def token(self) -> str:
        """Return a text that nobody else has."""
        return self._token_bytes(16).hex()

    def free_run_id(self, workflow: str) -> str:
        """Return an id that no run has: the workflow, then the time and chance; later ones sort later."""
        milliseconds = int((self._epoch_s + self._loop.time()) * 1000)
        chance = int.from_bytes(self._token_bytes(8), "big")
        return f"{workflow}-{_digits(milliseconds, _TIME_DIGITS)}{_digits(chance, _CHANCE_DIGITS)}"

    def ref(self, run_id: str) -> RunRef:
        """Return the run of this id in the client's namespace."""
        return RunRef(self.namespace, run_id)

    def check_open(self) -> None:
        """Refuse the use of a client that was closed."""
        if self._closed:
            raise InvalidRequest("this client was closed; connect another one")

    def check_store(self) -> None:
        """Refuse what needs a store where there is none."""
        if self._lacks_store is not None:
            raise InvalidRequest(self._lacks_store)

    def check_usable(self) -> None:
        """Refuse the use of a client that was closed, or in another event loop than its own."""
        self.check_open()
        if asyncio.get_running_loop() is not self._loop:
            raise InvalidRequest("this client belongs to another event loop; connect one in this loop")

    async def append(self, request: Append) -> Appended:
        """Commit *request*, then wake whom it concerns; say what became of it."""
        self.check_usable()
        if switch.active is not None:
            return await telling.asked(switch.active, request, self._append)
        return await self._append(request)

    async def _append(self, request: Append) -> Appended:
        answer = await append_for_sure(await self.store(), request)
        if answer.hints or answer.ended:
            await self._hint(answer)
        return answer

    async def command(self, command: Command) -> None:
        """Return when the broker has taken *command*; else raise ``BrokerUnavailable``."""
        self.check_usable()
        if switch.active is not None:
            await telling.commanded(switch.active, command, self._command)
        else:
            await self._command(command)

    async def _command(self, command: Command, trace: TraceContext | None = None) -> None:
        await self._commands.answer(publication_of_command(command, self.token(), trace))

    async def _publish_commands(self, commands: Sequence[Publication]) -> Sequence[TidewheelError | None]:
        """Publish commands that were given together, and say of each why it was not taken.

        Where nobody has declared what takes them that is done here, and those that were not taken go again.
        """
        answers = await self.broker.offer(commands)
        lost = [place for place, answer in enumerate(answers) if answer == "unroutable"]
        if lost:
            await self.broker.declare(commands_topology())
            again = await self.broker.offer([commands[place] for place in lost])
            for place, answer in zip(lost, again, strict=True):
                answers[place] = answer
        return [_problem(*each) for each in zip(commands, answers, strict=True)]

    async def close(self) -> None:
        """Stop listening for replies; who waits for a hint goes on without. May be called twice."""
        self._closed = True
        for task in self._publishing:
            task.cancel()
        await asyncio.gather(*self._publishing, return_exceptions=True)
        await self.replies.close()

    # Hints

    async def _hint(self, answer: Appended) -> None:
        """Return when what *answer* owes was published, as far as that can be done."""
        now_s = self._loop.time()
        if self._closed or now_s < self._hint_from_s:
            return
        if not self._is_hinting:
            # Whoever comes while this one tries again does not wait beside it.
            self._hint_from_s = now_s + HINT_TIMEOUT_S
        group = self._gathering
        if group is None:
            group = self._gathering = _Group()
            task = self._loop.create_task(self._publish(group), name="tidewheel-hints")
            self._publishing[task] = None
            # Not at the task's end in its own code: one that is cancelled before it began has none.
            task.add_done_callback(partial(self._release, group))
        # Each has a future of its own: one that is cancelled must not take the others along.
        done = self._loop.create_future()
        group.answers.append(answer)
        group.waiting.append(done)
        await done

    async def _publish(self, group: _Group) -> None:
        """Publish what is gathered by now."""
        self._gathering = None
        await self._publish_in_time(group.answers)

    def _release(self, group: _Group, task: asyncio.Task[None]) -> None:
        """Let those go on who wait for *group*."""
        self._publishing.pop(task, None)
        group.release(None if task.cancelled() else task.exception())

    async def _publish_in_time(self, answers: Sequence[Appended]) -> None:
        """Publish what *answers* owe; say so once where it cannot be done."""
        began_s = self._loop.time()
        try:
            async with asyncio.timeout(HINT_TIMEOUT_S):
                await self._publish_or_declare(answers)
        except (TidewheelError, TimeoutError) as problem:
            if self._is_hinting:
                why = str(problem) or f"the broker took longer than {HINT_TIMEOUT_S:g} s"
                logger.warning(
                    "the work is stored, but no worker was told: %s; the keeper will tell one", why
                )
            now_s = self._loop.time()
            self._hint_from_s = now_s + min(10 * (now_s - began_s), HINT_PAUSE_MAX_S)
            self._is_hinting = False
        else:
            if not self._is_hinting:
                logger.info("workers are told again")
            self._hint_from_s = began_s
            self._is_hinting = True

    async def _publish_or_declare(self, answers: Sequence[Appended]) -> None:
        """Publish; where a work queue is not there yet, make it, so that the hint waits for a worker."""
        own_queue = self.replies.queue
        wanted = publications(answers, own_queue=own_queue)
        if not wanted:
            return
        try:
            await self.broker.publish(wanted)
        except Unroutable as problem:
            lost = [
                publication
                for publication in wanted
                if address(publication) in problem.addresses and not is_for_a_client(publication.routing_key)
            ]
            if lost:
                queues = sorted({hint.queue for answer in answers for hint in answer.hints})
                await self.broker.declare(work_topology(self.namespace, queues))
                await self.broker.publish(lost)


def _problem(command: Publication, answer: Untaken | None) -> TidewheelError | None:
    """Return what *answer* comes to for whoever published *command*."""
    try:
        check_taken([command], [answer], "the broker")
    except TidewheelError as problem:
        return problem
    return None


async def append_for_sure(store: Store, request: Append) -> Appended:
    """Commit *request*; where the reply is lost, repeat it until the store says what became of it.

    Raises ``StoreUnavailable`` if nothing was written, ``CommitUnknown`` if nobody can tell.
    """
    unknown: CommitUnknown | None = None
    for pause_s in (*REPEAT_PAUSES_S, None):
        try:
            (answer,) = await store.append([request])
            return answer
        except CommitUnknown as problem:
            unknown = problem
        except StoreUnavailable:
            # Nothing was written now, but an earlier try may have been: that is what has to be found out.
            if unknown is None:
                raise
        if pause_s is not None:
            await asyncio.sleep(pause_s)
    raise CommitUnknown(
        f"it is not known whether this was written for run {request.run.run_id!r}; ask again with the same "
        f"id or key, which changes nothing if it was: {unknown}"
    ) from unknown


def _digits(number: int, count: int) -> str:
    """Return the lowest *count* digits of *number* in base 32."""
    pairs = [_PAIRS[number >> shift & 1023] for shift in range(5 * (count + count % 2) - 10, -1, -10)]
    return "".join(pairs)[count % 2 :]
