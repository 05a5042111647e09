"""An append as a conversation with the database: lock and look, decide, write. No I/O of its own.

``appending`` is a generator. It yields what to ask and is sent the answer, so that one piece of code serves
the event loop and the threads of transactional steps. In the normal case it asks twice: once for the
locks and all that was foreseen, once to write.

Decision: a run whose lock turns out to be needed is never locked out of turn. The whole conversation
begins again (``Again``) with that run among the others, in the order of their keys.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from tidewheel.store.append import Append, Appended
from tidewheel.store.columns import moment
from tidewheel.store.ledger import Ledger
from tidewheel.store.postgres.asked import Asked, foresee, widen
from tidewheel.store.postgres.rows import Fetched, FetchedRows, Missing
from tidewheel.store.postgres.written import Written
from tidewheel.store.records import RunRef

#: How often more may have to be fetched for one group; each time something new was asked for.
FETCHES_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Lock:
    """Begin, lock and look."""

    asked: bytes
    waiting: bool


@dataclass(frozen=True, slots=True)
class Look:
    """Look at more, under the same locks."""

    asked: bytes


@dataclass(frozen=True, slots=True)
class Write:
    """Write what happened *now*, and end the transaction."""

    written: Written
    now: dt.datetime


@dataclass(frozen=True, slots=True)
class Again:
    """Roll back: the next question is ``Lock`` again."""


Question: TypeAlias = Lock | Look | Write | Again


@dataclass(slots=True)
class Done:
    """What became of a group."""

    answers: dict[int, Appended] = field(default_factory=dict)
    #: The places of those appends whose runs somebody else has.
    held_up: list[int] = field(default_factory=list)
    #: What time it was in the database, in its microseconds.
    now_us: int = 0
    #: Of the queues that were asked about, those that have a limit and those that have none.
    limited: frozenset[tuple[str, str]] = frozenset()
    unlimited: frozenset[tuple[str, str]] = frozenset()


def appending(
    batch: Sequence[Append],
    *,
    waiting: bool,
    clock: Callable[[], float] | None,
    new_key: Callable[[dt.datetime], bytes],
    keep: Callable[[Sequence[Appended]], bool] = lambda _: True,
) -> Generator[Question, Any, Done]:
    """Write *batch*; those whose runs are locked are left out unless *waiting*.

    *clock* stands in for the database's, in tests. Nothing is written if *keep* says so of the answers.
    """
    wanted = foresee(batch)
    for _ in range(FETCHES_MAX):
        found = msgspec.json.decode((yield Lock(wanted.as_json(), waiting)))
        limited = frozenset((namespace, queue) for namespace, queue, *_ in found.get("limits") or ())
        done = Done(
            held_up=_held_up(batch, found, wanted),
            now_us=found["now"],
            limited=limited,
            unlimited=frozenset(wanted.limits - limited),
        )
        taken = [place for place in range(len(batch)) if place not in set(done.held_up)]
        fetched = Fetched()
        fetched.add(wanted, found)
        now = moment(found["now"]) if clock is None else dt.datetime.fromtimestamp(clock(), dt.UTC)
        try:
            answers, rows = yield from _decided([batch[place] for place in taken], fetched, now, new_key)
        except Missing as missing:
            _extend(wanted, missing.more)
            yield Again()
            continue
        written = rows.written()
        if not keep(answers):
            yield Again()
        else:
            yield Write(written, now)
        done.answers = dict(zip(taken, answers, strict=True))
        return done
    raise AssertionError("appends went on asking for more runs")


def _decided(
    batch: Sequence[Append], fetched: Fetched, now: dt.datetime, new_key: Callable[[dt.datetime], bytes]
) -> Generator[Question, Any, tuple[list[Appended], FetchedRows]]:
    """Run the ledger; each time it misses something, fetch that and run it again from the beginning."""
    for _ in range(FETCHES_MAX):
        rows = FetchedRows(fetched)
        ledger = Ledger(rows, now, lambda: new_key(now))
        try:
            return [ledger.append(request) for request in batch], rows
        except Missing as missing:
            if missing.is_lock:
                raise
            widen(missing.more, batch)
            fetched.add(missing.more, msgspec.json.decode((yield Look(missing.more.as_json()))))
    raise AssertionError("the ledger went on asking for more rows")


def _held_up(batch: Sequence[Append], found: dict[str, Any], wanted: Asked) -> list[int]:
    """Return the places of the appends that concern a run which was not got.

    Whose parent or child that run is is not known here, so a group that may end runs is held up as a whole.
    """
    skipped = {RunRef(*ref) for ref in found.get("skipped") or ()}
    if not skipped:
        return []
    direct = [
        place
        for place, request in enumerate(batch)
        if request.run in skipped or _may_reach(request, skipped, wanted)
    ]
    # An append of a run that is held up holds up those of the same run that come after it.
    runs = {batch[place].run for place in direct}
    return [place for place, request in enumerate(batch) if request.run in runs]


def _may_reach(request: Append, skipped: set[RunRef], wanted: Asked) -> bool:
    """Tell whether *request* may concern a run of another name that was not got."""
    if request.start is not None:
        return request.start.idempotency_key is not None
    if request.run not in wanted.closing and not (request.moves is not None and request.moves.abandoned):
        return False
    root = request.run.run_id.partition(":")[0]
    return any(ref.run_id.partition(":")[0] == root for ref in skipped)


def _extend(wanted: Asked, more: Asked) -> None:
    wanted.runs |= more.runs
    wanted.by_key |= more.by_key
    wanted.keys |= more.keys
    wanted.limits |= more.limits
