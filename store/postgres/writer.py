"""Group commit: appends that come while a transaction is under way share the next one.

One connection writes. A run that somebody else has locked is not waited for there: its appends go alone, over
another connection, in their order, and later ones of the same run queue up behind them. So nobody waits for
a lock but those whom it concerns.

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
from typing import Any, TypeVar, assert_never

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
from tidewheel.store.postgres.prepared import Prepared
from tidewheel.store.postgres.remembered import Memory
from tidewheel.store.records import RunRef
from tidewheel.store.statements import statements
from tidewheel.store.waiting import time_ordered_key

logger = logging.getLogger("tidewheel.store")

#: Appends in one transaction.
GROUP_MAX = 100
#: How often a transaction is repeated that certainly did nothing.
TRIES_MAX = 3

T = TypeVar("T")

_SQL = statements("postgres", "appending")
_WRITE_KNOWN = Prepared("tidewheel_write_known", _SQL["write_known"], _SQL["write_known"].count("$"))


class _Call:
    """Appends of one caller, who waits for the answers."""

    __slots__ = ("answers", "batch", "future", "left", "problems", "shown")

    def __init__(self, batch: Sequence[Append], future: asyncio.Future[list[Appended]], shown: str) -> None:
        self.batch = batch
        self.future = future
        self.shown = shown
        self.answers: dict[int, Appended] = {}
        self.problems: list[BaseException] = []
        self.left = len(batch)

    @property
    def is_over(self) -> bool:
        """Whether nothing more needs to be written: one has failed, or nobody waits any more."""
        return bool(self.problems) or self.future.done()

    def answer(self, place: int, answer: Appended) -> None:
        self.answers[place] = answer
        self._settle_one()

    def fail(self, problem: BaseException) -> None:
        self.problems.append(problem)
        self._settle_one()

    def leave_out(self) -> None:
        """One of them is not written any more."""
        self._settle_one()

    def _settle_one(self) -> None:
        """Tell the caller once all have been seen to: one that is under way may still be written."""
        self.left -= 1
        if self.left or self.future.done():
            return
        if self.problems:
            self.future.set_exception(self._problem())
        else:
            self.future.set_result([self.answers[place] for place in range(len(self.batch))])

    def _problem(self) -> BaseException:
        """Return the problem that asks most of the caller. Nothing was written only if that is so of all."""
        for problem in self.problems:
            if isinstance(problem, CommitUnknown):
                return problem
        for problem in self.problems:
            if not isinstance(problem, StoreUnavailable):
                return problem
        problem = self.problems[0]
        if not self.answers:
            return problem
        unknown = CommitUnknown(
            f"{self.shown}: of {len(self.batch)} appends {len(self.answers)} were written and others were "
            f"not ({problem}); repeat them all"
        )
        unknown.__cause__ = problem
        return unknown


_Item = tuple[_Call, int]


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
        self._waiting: deque[_Item] = deque()
        self._writing: asyncio.Task[None] | None = None
        #: Runs whose appends go alone, and what waits for them.
        self._alone: dict[RunRef, deque[_Item]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def append(self, batch: Sequence[Append]) -> list[Appended]:
        """Write all of *batch*; the answers are in its order."""
        if self._is_closed:
            raise StoreUnavailable(f"{self._database.shown}: the store was closed; nothing was written")
        if not batch:
            await self._try()
            return []
        call = _Call(batch, asyncio.get_running_loop().create_future(), self._database.shown)
        for place, request in enumerate(batch):
            queue = self._alone.get(request.run, self._waiting)
            queue.append((call, place))
        if self._waiting and self._writing is None:
            self._writing = self._spawn(self._write_for_ever())
        return await call.future

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
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(work, name="tidewheel-postgres-writer")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _write_for_ever(self) -> None:
        try:
            while self._waiting:
                await self._write(self._next_group(), waiting=False)
        finally:
            self._writing = None

    def _next_group(self) -> list[_Item]:
        """Return those that wait, but for runs that go alone by now: there they are behind earlier ones."""
        group: list[_Item] = []
        while self._waiting and len(group) < GROUP_MAX:
            item = self._waiting.popleft()
            queue = self._alone.get(_run_of(item))
            (group if queue is None else queue).append(item)
        return group

    async def _write(self, group: list[_Item], *, waiting: bool) -> None:
        """Do *group* in one transaction, or one by one if that fails; every one of them is answered."""
        for call, _ in group:
            if call.is_over:
                call.leave_out()
        group = [item for item in group if not item[0].is_over]
        if not waiting and self._memory.is_used:
            group = await self._write_known(group)
        if not group:
            return
        batch = [call.batch[place] for call, place in group]
        asked_s = time.monotonic()
        try:
            done = await self._transact(batch, waiting=waiting)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the callers have to hear of it
            if len(group) > 1 and not concerns_all(error) and not isinstance(error, CommitUnknown):
                for item in group:
                    await self._write([item], waiting=True)
                return
            told = translated(error, self._database.shown)
            for call, _ in group:
                call.fail(told)
            return
        self._database_clock.learn(done.now_us, asked_s)
        for place, answer in done.answers.items():
            call, own_place = group[place]
            call.answer(own_place, answer)
        for place in done.held_up:
            self._put_aside(group[place])

    async def _write_known(self, group: list[_Item]) -> list[_Item]:
        """Write what can be written without asking first, in one exchange; return what is left to be done.

        Of a group that turns out not to be as it was remembered nothing is written: all of it is left.
        """
        if self._generation != self._database.generation:
            self._generation = self._database.generation
            self._memory.forget_all()  # after a lost connection the server may be another
        now = self._database_clock.now()
        if now is None:
            return group
        known = KnownGroup([call.batch[place] for call, place in group], self._memory, now, new_key)
        if not known.answers:
            return group
        try:
            is_written = await self._commit_known(known)
        except CommitUnknown as error:
            for place in known.answers:
                group[place][0].fail(error)
        except Exception:  # noqa: BLE001 - asking first finds out what it is, and whom it concerns
            return group
        else:
            if not is_written:
                return group
            for place, answer in known.answers.items():
                call, own_place = group[place]
                call.answer(own_place, answer)
        return [item for place, item in enumerate(group) if place not in known.answers]

    async def _commit_known(self, known: KnownGroup) -> bool:
        """Write the group if it is as remembered, and remember what it is then."""
        asked_s = time.monotonic()
        self._counters.round_trips += 1
        async with self._database.lend_to_writer() as connection:
            if self._generation != self._database.generation:
                return False  # it is another connection, maybe to another server
            writing = write_known(connection, known, is_own_clock=self._clock is None)
            is_stale, mark, now_us = await self._exchange_of_commit(connection, writing)
        self._database_clock.learn(now_us, asked_s)
        if is_stale:
            return False
        if self._clock is None:
            known.happened(moment(now_us))
        known.keep(mark)
        self._count(known.changes.events)
        return True

    def _put_aside(self, item: _Item) -> None:
        run = _run_of(item)
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
                group = [queue.popleft() for _ in range(min(GROUP_MAX, len(queue)))]
                await self._write(group, waiting=True)
        finally:
            del self._alone[run]

    async def _transact(self, batch: Sequence[Append], *, waiting: bool) -> Done:
        for tried in range(TRIES_MAX):
            try:
                lend = self._database.lend if waiting else self._database.lend_to_writer
                async with lend() as connection:
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
            raise CommitUnknown(
                f"{self._database.shown}: the reply to a commit was lost ({error}); repeat the append"
            ) from error

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


def _run_of(item: _Item) -> RunRef:
    call, place = item
    return call.batch[place].run


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


async def write_known(
    connection: psycopg.AsyncConnection[Any], known: KnownGroup, *, is_own_clock: bool
) -> tuple[bool, str, int]:
    """Write and commit, in one round trip, if all is as it was; say whether it is not, the mark, the time."""
    is_stale, mark, now_us = await _WRITE_KNOWN.ask(connection, known.arguments(is_own_clock=is_own_clock))
    assert now_us is not None
    return is_stale == b"\x01", (mark or b"").decode(), int.from_bytes(now_us, signed=True)
