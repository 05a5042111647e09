"""From one row per event, as revision 0001 had them, to one row per append.

Each run is read once and folded, so that its passages get what whoever publishes them has to know. What the
event bus was owed were the events from the first to the last that a commit published, and are passages now.

What cannot be read is carried over as it is: reading it fails as it did before, and names its place. From
there on nothing is published of the run, since what the fold would have to know is not there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any
from zlib import crc32

import msgspec
from msgspec import UNSET
from sqlalchemy import LargeBinary, bindparam, text
from sqlalchemy.engine import Connection

from tidewheel.journal.codec import decode
from tidewheel.journal.errors import TidewheelError
from tidewheel.journal.events import Entry, Event, InvokeScheduled
from tidewheel.journal.public import PublicFold, publish

#: Runs that are read at a time.
RUNS_MAX = 500

_NEXT_RUNS = text(
    "SELECT run_key, namespace, run_id FROM tidewheel_runs "
    "WHERE run_key > :after ORDER BY run_key LIMIT :limit"
).bindparams(bindparam("after", type_=LargeBinary))
_EVENTS = text(
    "SELECT run_key, run_seq, at, checksum, type, data FROM tidewheel_events "
    "WHERE run_key BETWEEN :first AND :last ORDER BY run_key, run_seq"
).bindparams(bindparam("first", type_=LargeBinary), bindparam("last", type_=LargeBinary))
_OWED = text(
    "SELECT run_key, first_seq, last_seq, created_at, due_at, attempts, claimed_by, claimed_until, "
    "last_error FROM tidewheel_outbox WHERE run_key BETWEEN :first AND :last ORDER BY run_key, first_seq"
).bindparams(bindparam("first", type_=LargeBinary), bindparam("last", type_=LargeBinary))
_FORGET = text("DELETE FROM tidewheel_outbox WHERE run_key BETWEEN :first AND :last").bindparams(
    bindparam("first", type_=LargeBinary), bindparam("last", type_=LargeBinary)
)
_OWE = text(
    "INSERT INTO tidewheel_outbox (run_key, first_seq, last_seq, created_at, due_at, attempts, claimed_by, "
    "claimed_until, last_error) VALUES (:run_key, :first_seq, :last_seq, :created_at, :due_at, :attempts, "
    ":claimed_by, :claimed_until, :last_error)"
)
_INSERT = text(
    "INSERT INTO tidewheel_journal (run_key, first_seq, last_seq, at, codec, data, checksum, public) "
    "VALUES (:run_key, :first_seq, :last_seq, :at, 'json', :data, :checksum, :public)"
)

_encode = msgspec.json.encode


def convert_events(connection: Connection) -> None:
    """Fill the new journal from the old one, and let the outbox speak of its rows."""
    after = b""
    while runs := connection.execute(_NEXT_RUNS, {"after": after, "limit": RUNS_MAX}).all():
        after = bytes(runs[-1][0])
        _convert_runs(connection, runs, {"first": bytes(runs[0][0]), "last": after})


def _convert_runs(connection: Connection, runs: Sequence[Any], span: dict[str, bytes]) -> None:
    names = {bytes(key): (namespace, run_id) for key, namespace, run_id in runs}
    owed = {
        bytes(key): list(of_run)
        for key, of_run in groupby(connection.execute(_OWED, span), key=itemgetter(0))
    }
    journal: list[dict[str, Any]] = []
    outbox: list[dict[str, Any]] = []
    for row_key, of_run in groupby(connection.execute(_EVENTS, span), key=itemgetter(0)):
        key = bytes(row_key)
        if key not in names:
            continue  # it was retired on Postgres, where events stay behind until their partition goes
        namespace, run_id = names[key]
        passages = list(_passages(key, PublicFold.start(run_id, namespace), list(of_run)))
        journal += passages
        outbox += _owed(passages, owed.get(key, ()))
    connection.execute(_FORGET, span)
    if journal:
        connection.execute(_INSERT, journal)
    if outbox:
        connection.execute(_OWE, outbox)


def _passages(key: bytes, fold: PublicFold, events: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Yield the rows of one run: consecutive events of one moment were written together."""
    is_readable = True
    expected = 0
    for (at, _, damaged_seq), together in groupby(enumerate(events), key=_writing):
        group = [event for _, event in together]
        first_seq, last_seq = group[0][1], group[-1][1]
        data = b"[" + b",".join(_typed(type_, bytes(data)) for *_, type_, data in group) + b"]"
        is_readable = is_readable and damaged_seq is None and first_seq == expected
        expected = last_seq + 1
        public = None
        if is_readable:
            try:
                fold, public = _folded(fold, first_seq, decode(data))
            except TidewheelError:
                is_readable = False
        yield {
            "run_key": key,
            "first_seq": first_seq,
            "last_seq": last_seq,
            "at": at,
            "data": data,
            # A damaged one was found out before, and has to be again.
            "checksum": crc32(data) if damaged_seq is None else -1,
            "public": public,
        }


def _writing(placed: tuple[int, Any]) -> tuple[int, int, int | None]:
    """Return what the events of a passage share; one that is damaged shares its passage with no other."""
    place, (_, run_seq, at, checksum, _, data) = placed
    return at, run_seq - place, None if crc32(data) == checksum else run_seq


def _owed(passages: Sequence[dict[str, Any]], ranges: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Yield what the event bus is owed of one run; *ranges* are what it was, in their order."""
    remaining = iter(ranges)
    owed = next(remaining, None)
    for passage in passages:
        while owed is not None and owed.last_seq < passage["first_seq"]:
            owed = next(remaining, None)
        if owed is None:
            return
        if owed.first_seq <= passage["last_seq"] and passage["public"] is not None:
            place = {name: passage[name] for name in ("run_key", "first_seq", "last_seq")}
            yield {**owed._mapping, **place}  # noqa: SLF001 - SQLAlchemy's name for it, which is public


def _typed(type_: str, data: bytes) -> bytes:
    """Return the fields of an event, as JSON, with its type among them."""
    opening = b'{"type":' + _encode(type_)
    return opening + (b"}" if data == b"{}" else b"," + data[1:])


def _folded(fold: PublicFold, first_seq: int, events: Sequence[Event]) -> tuple[PublicFold, bytes | None]:
    """Return the fold after *events*, and what is stored with them if they publish anything."""
    before = (fold.prev_seq, fold.plan_version, fold.started_id)
    steps: dict[str, list[Any]] = {}
    used: dict[str, int] = {}
    for event in events:
        path = getattr(event, "promise_id", None)
        step = None if path is None else fold.open.get(path)
        if isinstance(event, InvokeScheduled):
            step_id = path if event.key is UNSET else event.key
            earlier = fold.used.get(str(step_id)) or 0
            if earlier >= event.logical_attempt:
                used[str(step_id)] = earlier
        elif step is not None and path is not None:
            told = step.started_id is not None
            parts = [step.id, step.name, step.key_part, step.attempt, told, step.failed, step.signal_id]
            steps[path] = [path, *parts]
    after = fold
    for seq, event in enumerate(events, first_seq):
        after, _ = publish(after, Entry(seq, None, event))
    if after.prev_seq == before[0]:
        return after, None
    return after, _encode((*before, list(steps.values()), list(used.items())))
