"""Text that a terminal shows as meant: safe, measured in columns, and cut to fit.

Names and messages come from users and from whoever they talk to. What a terminal would obey
instead of show (control characters, changes of writing direction) is written as an escape. A
width is the number of columns, not of characters; where terminals differ the larger is taken.
"""

from __future__ import annotations

import unicodedata
from typing import Final, NamedTuple

import msgspec

from tidewheel.journal.events import Error, Json

#: Columns of a name, of a payload, and of an error's message, inside a line.
NAME_COLUMNS_MAX: Final = 100
PAYLOAD_COLUMNS_MAX: Final = 60
MESSAGE_COLUMNS_MAX: Final = 120
#: Characters of any text that are looked at, however many of them take no column.
CHARACTERS_MAX: Final = 1000
ELLIPSIS: Final = "..."
#: Asks for the emoji form of the character before it, which takes two columns in some terminals.
_EMOJI_FORM: Final = "\ufe0f"
#: Seconds that no calendar holds, ten thousand years; a journal may hold any number.
FOR_EVER: Final = 3.2e11
_SECOND_MS: Final = 1000
_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR


class Piece(NamedTuple):
    """A part of a line, and its colour as an SGR code; ``""`` is the terminal's own."""

    text: str
    colour: str = ""


def plain(text: str) -> str:
    """Return *text* on one line, with everything that is not shown as itself escaped."""
    shown = text[:CHARACTERS_MAX]
    if shown.isprintable():
        return shown
    return "".join(each if each.isprintable() else _escaped(each) for each in shown)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def ascii_form(text: str) -> str:
    """Return *text* with what is not ASCII escaped."""
    return text if text.isascii() else text.encode("ascii", "backslashreplace").decode("ascii")


def columns(text: str) -> int:
    """Return how many columns the plain *text* takes."""
    return len(text) if text.isascii() else sum(map(_columns_of, text))


def _columns_of(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    if unicodedata.category(character) in ("Mn", "Me") and character != _EMOJI_FORM:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def clipped(text: str, width: int) -> str:
    """Return the beginning of *text* that takes at most *width* columns."""
    if len(text) <= width and text.isascii():
        return text
    taken = 0
    for index, character in enumerate(text):
        taken += _columns_of(character)
        if taken > width:
            return text[:index]
    return text


def cut(text: str, width: int) -> str:
    """Return *text* in at most *width* columns, ending in an ellipsis where it is cut."""
    if columns(text) <= width:
        return text
    return clipped(text, max(0, width - len(ELLIPSIS))) + ELLIPSIS[: max(0, width)]


def padded(text: str, width: int) -> str:
    """Return *text* in exactly *width* columns."""
    shown = cut(text, width)
    return shown + " " * (width - columns(shown))


def line_of(pieces: list[Piece], width: int, *, colour: bool) -> str:
    """Return *pieces* as one line of at most *width* columns, without spaces at its end."""
    total = sum(columns(piece.text) for piece in pieces)
    left = width if total <= width else max(0, width - len(ELLIPSIS))
    shown: list[Piece] = []
    for piece in pieces:
        text = clipped(piece.text, left)
        left -= columns(text)
        shown.append(Piece(text, piece.colour))
        if text != piece.text:
            break
    if total > width:
        shown.append(Piece(ELLIPSIS[:width]))
    while shown and not shown[-1].text.strip(" "):
        shown.pop()
    if shown:
        shown[-1] = Piece(shown[-1].text.rstrip(" "), shown[-1].colour)
    return "".join(_coloured(piece) if colour else piece.text for piece in shown)


def _coloured(piece: Piece) -> str:
    return f"\x1b[{piece.colour}m{piece.text}\x1b[0m" if piece.colour and piece.text else piece.text


def duration(seconds: float) -> str:
    """Return a length of time as people say it: ``250 ms``, ``2.0 s``, ``3 min 05 s``, ``2 d 04 h``."""
    if not seconds < FOR_EVER:
        return "for ever"
    milliseconds = round(max(seconds, 0.0) * _SECOND_MS)
    if milliseconds < _SECOND_MS:
        return f"{milliseconds} ms" if milliseconds else "0 s"
    if milliseconds < _MINUTE * _SECOND_MS - 50:  # what rounds to a minute is shown as one
        return f"{milliseconds / _SECOND_MS:.1f} s"
    whole = round(seconds)
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE:02} s"
    minutes = round(seconds / _MINUTE)
    if minutes * _MINUTE < _DAY:
        return f"{minutes // 60} h {minutes % 60:02} min"
    hours = round(seconds / _HOUR)
    return f"{hours // 24:,} d {hours % 24:02} h"


def clock(seconds: float) -> str:
    """Return a length of time as a running clock: ``00:12``, ``1:02:03``."""
    whole = int(max(seconds, 0.0))
    hours, minutes, rest = whole // _HOUR, whole % _HOUR // _MINUTE, whole % _MINUTE
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"


def counted(number: int, noun: str) -> str:
    """Return *number* with *noun*, in its plural where it is not one."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def name(text: str) -> str:
    """Return a name as it is shown; those that the product allows are never cut."""
    return cut(plain(text), NAME_COLUMNS_MAX)


def payload(value: Json) -> str:
    """Return a JSON value on one line, cut where it is long."""
    return cut(plain(msgspec.json.encode(value).decode()), PAYLOAD_COLUMNS_MAX)


def because(error: Error) -> str:
    """Return why something failed, cut where it is long."""
    told = f"{error.type}: {error.message}" if error.message else error.type
    return cut(plain(told), MESSAGE_COLUMNS_MAX)
