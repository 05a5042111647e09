"""Group commit: appends that come while a transaction is under way share the next one.

What can be written without asking first (``known_group``) goes over one connection, one group after the
other; the next one is sent before whoever waited for the last is told, so that the database has something to
do meanwhile. What has to ask does so over another connection.

A run that somebody else has locked is not waited for by its group: its appends go alone, in their order, and
later ones of the same run queue up behind them. So nobody waits for a lock but those whom it concerns.

A COMMIT whose reply is lost says nothing. The callers are told so (``CommitUnknown``) and repeat their
append, which waits for the locks of the first try; the backend of that try is ended, in case it hangs.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar, assert_never

import psycopg

from tidewheel.store.append import Append, Appended
from tidewheel.store.columns import moment
from tidewheel.store.counting import Counters
from tidewheel.store.errors import CommitUnknown, StoreUnavailable
from tidewheel.store.postgres.appending import Again, Done, Lock, Look, Question, Write, appending
from tidewheel.store.postgres.database import Database
from tidewheel.store.postgres.database_clock import DatabaseClock
from tidewheel.store.postgres.faults import concerns_all, is_lost, is_worth_repeating, pause, translated
from tidewheel.store.postgres.known_group import KnownGroup
from tidewheel.store.postgres.memory import Memory
from tidewheel.store.postgres.writing_link import WritingLink
from tidewheel.store.protocol import Answered
from tidewheel.store.records import RunRef
from tidewheel.store.statements import statements
from tidewheel.store.submitting import Batch, answer_safely
from tidewheel.store.waiting import time_ordered_key

logger = logging.getLogger("tidewheel.store")

#: How often a transaction is repeated that certainly did nothing.
TRIES_MAX = 3

T = TypeVar("T")

_SQL = statements("postgres", "appending")

#: An append, and who waits for its answer.
Item: TypeAlias = tuple[Append, Answered]


class Writer:
    """Executes appends, in the order in which they came; *written* is called after a commit."""

    def __init__(
        self,
        database: Database,
        counters: Counters,
        written: Callable[[], None],
        clock: Callable[[], float] | None,
        memory: Memory,
    ) -> None:
        self._database = database
        self._memory = memory
        self._generation = database.generation
        self._database_clock = DatabaseClock(clock)
        self._counters = counters
        self._written = written
        self._clock = clock
        self._group_max = database.config.group_max
        known = {name: _SQL[name] for name in ("write_known", "write_one")}
        self._link = WritingLink(database, known)
        #: Whose backend executes the known write that is under way.
        self._link_pid = 0
        self._waiting: deque[Item] = deque()
        #: Whether a group is being written, or about to be: the next one is seen to when that is done.
        self._is_writing = False
        self._next: asyncio.Handle | None = None
        self._loop = asyncio.get_running_loop()
        self._at_rest: asyncio.Future[None] | None = None
        #: Runs whose appends go alone, and what waits for them.
        self._alone: dict[RunRef, deque[Item]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def submit(self, request: Append, answered: Answered) -> None:
        """Write *request*, and call *answered* once, not from in here."""
        if self._is_closed:
            closed = StoreUnavailable(f"{self._database.shown}: the store was closed; nothing was written")
            self._loop.call_soon(answered, closed)
            return
        queue = self._waiting
        if self._alone:
            queue = self._alone.get(request.run, queue)
        queue.append((request, answered))
        if not self._is_writing:
            self._is_writing = True
            self._next = self._loop.call_soon(self.flush)  # whatever is submitted until then goes along

    def flush(self) -> None:
        """Begin to write what was submitted, if that was only waiting for others to come along."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
            self._write_next()

    async def append(self, batch: Sequence[Append]) -> list[Appended]:
        """Write all of *batch*; the answers are in its order."""
        if self._is_closed:
            raise StoreUnavailable(f"{self._database.shown}: the store was closed; nothing was written")
        if not batch:
            await self._try()
            return []
        return await Batch(self._database.shown).submit_to(self.submit, batch)

    async def _try(self) -> None:
        """Do all that an append does, to no run: whoever asks wants to know whether it can be done."""
        try:
            await self._transact([], waiting=False)
        except Exception as error:
            told = translated(error, self._database.shown)
            if told is error:
                raise
            raise told from error

    async def close(self) -> None:
        """Finish what was asked for. May be called twice."""
        self._is_closed = True
        while self._tasks or self._is_writing:
            if self._tasks:
                await asyncio.wait(self._tasks)
            else:
                self._at_rest = self._at_rest or self._loop.create_future()
                await self._at_rest
        await self._link.close()

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(work, name="tidewheel-postgres-writer")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # Groups

    def _write_next(self) -> None:
        """Begin with those that wait."""
        group = self._next_group()
        if not group:
            self._is_writing = False
            if self._at_rest is not None and not self._at_rest.done():
                self._at_rest.set_result(None)
            self._at_rest = None
        elif self._memory.is_used and not self._link.is_open:
            self._spawn(self._connect_and_write(group))
        elif not self._write_known(group):
            self._spawn(self._ask_and_go_on(group))

    def _next_group(self) -> list[Item]:
        """Return those that wait, but for runs that go alone by now: there they are behind earlier ones."""
        waiting, most = self._waiting, self._group_max
        if not self._alone and len(waiting) <= most:
            group = list(waiting)
            waiting.clear()
            return group
        group = []
        while waiting and len(group) < most:
            item = waiting.popleft()
            queue = self._alone.get(item[0].run)
            (group if queue is None else queue).append(item)
        return group

    # What is known

    def _write_known(self, group: list[Item]) -> bool:
        """Begin to write what can be written without asking first; false if nothing can.

        Of a group that turns out not to be as it was remembered nothing is written: all of it is asked for.
        """
        if not self._memory.is_used:
            return False
        if self._generation != self._database.generation:
            self._generation = self._database.generation
            self._memory.forget_all()  # after a lost connection the server may be another
        now = self._database_clock.now()
        if now is None:
            return False
        try:
            known = KnownGroup([request for request, _ in group], self._memory, now, new_key)
            if not known.answers:
                return False
            statement, arguments = known.statement(is_own_clock=self._clock is None)
        except Exception:
            logger.exception("a write was not made as it should have been, and is made by asking first")
            return False
        self._counters.round_trips += 1
        self._link_pid = self._link.backend_pid
        self._link.ask(statement, arguments, partial(self._known_written, group, known, time.monotonic()))
        return True

    async def _connect_and_write(self, group: list[Item]) -> None:
        """Open the connection for known writes first; where that cannot be done at all, say so."""
        try:
            await self._link.open()
        except Exception as error:  # noqa: BLE001 - whatever it is, the callers are told, or asking tells them
            if is_lost(error):
                self._refuse(group, error)
                self._write_next()
                return
        if not self._link.is_open or not self._write_known(group):
            await self._ask_and_go_on(group)

    def _known_written(
        self,
        group: list[Item],
        known: KnownGroup,
        asked_s: float,
        answer: list[bytes | None] | Exception,
    ) -> None:
        """The answer to a known write has come."""
        answers = known.answers
        unknown: CommitUnknown | None = None
        if isinstance(answer, Exception):
            if is_lost(answer):
                unknown = self._reply_lost(answer)
            else:
                answers = {}  # asking first finds out what it is, and whom it concerns
                if not isinstance(answer, psycopg.errors.UniqueViolation):  # a run that is there already
                    logger.warning("a known write failed, and is made by asking first: %s", answer)
        elif not self._take_in(known, asked_s, answer):
            answers = {}
        rest = [item for place, item in enumerate(group) if place not in answers]
        if rest:
            self._spawn(self._ask_and_go_on(rest))
        else:
            self._write_next()
        for place, appended in answers.items():
            answer_safely(group[place][1], appended if unknown is None else unknown)

    def _take_in(self, known: KnownGroup, asked_s: float, answer: list[bytes | None]) -> bool:
        """Remember what was written; false if it was not, since something was not as remembered."""
        is_stale, now_us = answer
        assert now_us is not None
        now = int.from_bytes(now_us, signed=True)
        self._database_clock.learn(now, asked_s)
        if is_stale == b"\x01":
            return False
        if self._clock is None:
            known.happened(moment(now))
        self._count(known.writes.events)
        try:
            if self._generation == self._database.generation:
                known.keep()
        except Exception:
            logger.exception("what was written could not be remembered, and is asked for the next time")
        return True

    def _reply_lost(self, error: Exception) -> CommitUnknown:
        """Return what is told of an exchange that commits, and whose reply will not come."""
        self._spawn(self._end_backend(self._link_pid))
        return self._unknown(error)

    # What has to ask

    async def _ask_and_go_on(self, group: list[Item]) -> None:
        try:
            await self._ask(group, waiting=False)
        finally:
            self._write_next()

    async def _ask(self, group: list[Item], *, waiting: bool) -> None:
        """Do *group* in one transaction, or one by one if that fails; every one of them is answered."""
        asked_s = time.monotonic()
        try:
            done = await self._transact([request for request, _ in group], waiting=waiting)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the callers have to hear of it
            if len(group) > 1 and not concerns_all(error) and not isinstance(error, CommitUnknown):
                for item in group:
                    await self._ask([item], waiting=True)
                return
            self._refuse(group, error)
            return
        self._database_clock.learn(done.now_us, asked_s)
        self._memory.learn_limits(done.limited, done.unlimited)
        for place, answer in done.answers.items():
            answer_safely(group[place][1], answer)
        for place in done.held_up:
            self._put_aside(group[place])

    def _refuse(self, group: list[Item], error: BaseException) -> None:
        told = translated(error, self._database.shown)
        for _, answered in group:
            answer_safely(answered, told if isinstance(told, Exception) else _closed(told))

    def _put_aside(self, item: Item) -> None:
        run = item[0].run
        queue = self._alone.get(run)
        if queue is None:
            self._alone[run] = deque([item])
            self._spawn(self._write_alone(run))
        else:
            queue.append(item)

    async def _write_alone(self, run: RunRef) -> None:
        queue = self._alone[run]
        try:
            while queue:
                group = [queue.popleft() for _ in range(min(self._group_max, len(queue)))]
                await self._ask(group, waiting=True)
        finally:
            del self._alone[run]

    async def _transact(self, batch: Sequence[Append], *, waiting: bool) -> Done:
        for tried in range(TRIES_MAX):
            try:
                async with self._database.lend() as connection:
                    conversation = appending(batch, waiting=waiting, clock=self._clock, new_key=new_key)
                    return await self._converse(connection, conversation)
            except Exception as error:
                is_last = tried == TRIES_MAX - 1
                if isinstance(error, CommitUnknown) or is_last:
                    raise
                if not is_worth_repeating(error) and not (is_lost(error) and tried == 0):
                    raise
                await pause(tried)
        raise AssertionError("unreachable")

    async def _converse(
        self, connection: psycopg.AsyncConnection[Any], conversation: Generator[Question, Any, Done]
    ) -> Done:
        """Carry questions to the database and answers back."""
        answer: Any = None
        try:
            while True:
                question = conversation.send(answer)
                self._counters.round_trips += 1
                if isinstance(question, Write):
                    await self._commit(connection, question)
                    answer = None
                else:
                    answer = await self._database.timed(connection, ask(connection, question))
        except StopIteration as done:
            result: Done = done.value
            return result
        except Exception as error:
            if not is_lost(error) and not connection.closed:
                await self._database.timed(connection, connection.execute("ROLLBACK"))
            raise
        finally:
            conversation.close()

    async def _commit(self, connection: psycopg.AsyncConnection[Any], write: Write) -> None:
        await self._exchange_of_commit(connection, commit(connection, write))
        self._count(write.written.events)

    async def _exchange_of_commit(
        self, connection: psycopg.AsyncConnection[Any], exchange: Awaitable[T]
    ) -> T:
        """Wait for an exchange that commits. If its reply is lost, nobody knows."""
        backend = connection.info.backend_pid
        try:
            return await self._database.timed(connection, exchange)
        except Exception as error:
            if not is_lost(error):
                raise
            self._spawn(self._end_backend(backend))
            raise self._unknown(error) from error

    def _unknown(self, error: Exception) -> CommitUnknown:
        told = CommitUnknown(
            f"{self._database.shown}: the reply to a commit was lost ({error}); repeat the append"
        )
        told.__cause__ = error
        return told

    def _count(self, events: int) -> None:
        self._counters.commits += 1
        self._counters.events_written += events
        self._written()

    async def _end_backend(self, pid: int) -> None:
        """End a backend whose client has left, so that it gives up its locks."""
        with contextlib.suppress(Exception):
            async with self._database.lend() as connection:
                await self._database.timed(
                    connection, connection.execute(_SQL["end_backend"], (pid, self._database.name))
                )


def _closed(error: BaseException) -> StoreUnavailable:
    """Return what is told of appends whose task was cancelled: the process ends."""
    told = StoreUnavailable("the store was closed; whether it was written is not known")
    told.__cause__ = error
    return told


def new_key(now: dt.datetime) -> bytes:
    """Return a key for a run that is started *now*."""
    return time_ordered_key(now, secrets.randbits(80))


async def ask(connection: psycopg.AsyncConnection[Any], question: Question) -> Any:
    """Put *question* to the database, in one round trip."""
    match question:
        case Lock(asked=asked, waiting=waiting):
            async with connection.pipeline():
                await connection.execute("BEGIN")
                cursor = await connection.execute(_SQL["lock"], (asked.decode(), waiting), prepare=True)
            row = await cursor.fetchone()
        case Look(asked=asked):
            cursor = await connection.execute(_SQL["look"], (asked.decode(),), prepare=True)
            row = await cursor.fetchone()
        case Again():
            await connection.execute("ROLLBACK")
            return None
        case Write():
            raise AssertionError("a write is committed")
        case _:
            assert_never(question)
    assert row is not None
    return row[0]


async def commit(connection: psycopg.AsyncConnection[Any], write: Write) -> None:
    """Write and commit, in one round trip."""
    if write.written.is_empty:
        await connection.execute("COMMIT")
        return
    async with connection.pipeline():
        await connection.execute(_SQL["write"], write.written.parameters(write.now), prepare=True)
        await connection.execute("COMMIT")
