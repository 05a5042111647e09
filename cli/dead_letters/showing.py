"""``tidewheel dlq list`` and ``dlq show``: what could not be published, and why."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from tidewheel.cli import output
from tidewheel.cli.aligned import aligned
from tidewheel.cli.connecting import Where, stored
from tidewheel.cli.dead_letters.choosing import Chosen, letter_id, named, parse_id
from tidewheel.cli.exit_codes import ExitCode
from tidewheel.cli.timeline.text import counted, cut, plain
from tidewheel.journal.public import PublicEvent
from tidewheel.store.errors import Unreadable
from tidewheel.store.outbox import DeadLetter, Outbox, Owed, OwedRow
from tidewheel.store.owed_events import events_of

_HEAD = ("DEAD LETTER", "WORKFLOW", "DIED", "TRIES", "BEHIND", "WHY")
_WHY_COLUMNS_MAX = 80


def show_list(where: Where, chosen: Chosen, *, limit: int, as_json: bool) -> ExitCode:
    """Print dead letters, those of the oldest run first."""
    chosen.check()
    letters = asyncio.run(_read(where, chosen, limit))
    if as_json:
        output.emit_json([as_json_value(letter) for letter in letters])
        return ExitCode.OK
    if letters:
        for line in aligned([_HEAD, *(_row(letter) for letter in letters)]):
            output.emit(line)
    more = f"; --limit {limit} was reached" if len(letters) == limit else ""
    output.say(counted(len(letters), "dead letter") + more)
    return ExitCode.OK


async def _read(where: Where, chosen: Chosen, limit: int) -> list[DeadLetter]:
    letters: list[DeadLetter] = []
    async with stored(where) as (store, namespace):
        async for page in chosen.found(store.outbox, namespace):
            letters += page
            if len(letters) >= limit:
                break
    return letters[:limit]


def show_one(where: Where, name: str, *, as_json: bool) -> ExitCode:
    """Print one dead letter with the events that are in it."""
    parse_id(name)
    letter, events = asyncio.run(_open(where, name))
    if as_json:
        output.emit_json({**as_json_value(letter), "events": _events(events)})
        return ExitCode.OK
    for label, value in _facts(letter):
        output.emit(f"{label:<12} {value}")
    if isinstance(events, Unreadable):
        output.emit(f"{'events':<12} cannot be read: {plain(str(events))}")
        return ExitCode.OK
    for event in events:
        step = "" if event.step_id is None else f" of step {plain(event.step_id)}"
        output.emit(f"{'event':<12} {event.run_seq} {event.event_type}{step}")
    return ExitCode.OK


async def _open(where: Where, name: str) -> tuple[DeadLetter, list[PublicEvent] | Unreadable]:
    async with stored(where) as (store, namespace):
        letter = await named(store.outbox, namespace, name)
        return letter, await _events_of(store.outbox, letter)


async def _events_of(outbox: Outbox, letter: DeadLetter) -> list[PublicEvent] | Unreadable:
    row = OwedRow(first_seq=letter.place.first_seq, last_seq=letter.last_seq, size=0)
    owed = Owed(
        run_key=letter.place.run_key,
        run=letter.run,
        workflow=letter.workflow,
        attempts=letter.attempts,
        since=letter.created_at,
        rows=(row,),
    )
    (events,) = await events_of(outbox, [(owed, row)])
    return events


def as_json_value(letter: DeadLetter) -> dict[str, Any]:
    """Return *letter* as programs read it."""
    return {
        "id": letter_id(letter),
        "run_id": letter.run.run_id,
        "workflow": letter.workflow,
        "first_seq": letter.place.first_seq,
        "last_seq": letter.last_seq,
        "attempts": letter.attempts,
        "first_error": letter.first_error,
        "last_error": letter.last_error,
        "created_at": output.plain(letter.created_at),
        "dead_at": output.plain(letter.dead_at),
        "waiting": letter.waiting,
    }


def _events(events: list[PublicEvent] | Unreadable) -> Any:
    if isinstance(events, Unreadable):
        return {"error": str(events)}
    return [msgspec.json.decode(msgspec.json.encode(event)) for event in events]


def _facts(letter: DeadLetter) -> list[tuple[str, str]]:
    return [
        ("dead letter", plain(letter_id(letter))),
        ("workflow", plain(letter.workflow)),
        ("written", _moment(letter.created_at)),
        ("died", _moment(letter.dead_at)),
        ("tries", str(letter.attempts)),
        ("first error", plain(letter.first_error)),
        ("last error", plain(letter.last_error)),
        ("behind it", f"{counted(letter.waiting, 'row')} of the same run"),
    ]


def _row(letter: DeadLetter) -> tuple[str, ...]:
    why = cut(plain(letter.last_error), _WHY_COLUMNS_MAX)
    tries, behind = str(letter.attempts), str(letter.waiting)
    return plain(letter_id(letter)), plain(letter.workflow), _moment(letter.dead_at), tries, behind, why


def _moment(at: Any) -> str:
    return str(at.strftime("%Y-%m-%d %H:%M:%SZ"))
