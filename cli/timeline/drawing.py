"""A run's journal as a chart in a terminal: a row for each lane, with a bar from when to when.

Bars share one scale from the run's start to its end, or to now where it goes on. Where a journal
has no times, or the same one everywhere, bars are placed by the order of its entries instead, and
the scale says so. No line is wider than the width that is asked for; where there is no room for
bars they are left out. Of very many rows the first and the last are drawn.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple, TypeAlias

from tidewheel.cli.timeline import words
from tidewheel.cli.timeline.reading import CLOSED, Lane, Moment, Reader
from tidewheel.cli.timeline.text import (
    Piece,
    ascii_form,
    columns,
    counted,
    cut,
    duration,
    line_of,
    padded,
    plain,
)
from tidewheel.journal import events as ev
from tidewheel.journal.ids import is_path, path_order

#: Rows that are drawn unless all are asked for.
ROWS_MAX: Final = 200
#: A bar with fewer columns than this says nothing and is left out.
BAR_COLUMNS_MIN: Final = 10
#: From this many columns on the scale names its middle too.
MIDDLE_COLUMNS_MIN: Final = 50
GAP: Final = "  "
#: What a share of the width may be short of for want of digits.
ROUNDING: Final = 1e-9

Line: TypeAlias = list[Piece]


class Ink(NamedTuple):
    """How a cell of a bar is drawn: a character, one in ASCII, a colour, and what it means."""

    character: str
    plain: str
    colour: str
    means: str


#: In the order they are painted: a short attempt is seen over the long wait beside it.
INKS: Final[dict[str, Ink]] = {
    "queued": Ink("░", ".", "2", "queued"),
    "backoff": Ink("·", "~", "33", "retry backoff"),
    "parked": Ink("┄", "_", "35", "parked"),
    "waiting": Ink("─", "-", "36", "waiting"),
    "running": Ink("█", "=", "32", "running"),
    "failed": Ink("✗", "x", "31", "failed"),
    "skipped": Ink("»", "s", "35", "skipped"),
    "cancelled": Ink("┤", "|", "2", "given up"),
    "abandoned": Ink("∅", "!", "2", "abandoned"),
    "open": Ink(">", ">", "1", "still open"),
}
_ORDER: Final = {state: place for place, state in enumerate(INKS)}
#: The colour of what is said of a lane, where that is not its ink's.
COLOURS: Final[dict[str, str]] = {"done": "32", "COMPLETED": "32", "FAILED": "31", "CANCELLED": "35"}


@dataclass(frozen=True, slots=True)
class Look:
    """What the terminal can show, and what is to be said of it."""

    width: int
    colour: bool = False
    ascii_only: bool = False
    rows_max: int | None = ROWS_MAX
    all_flag: str = "--all"
    now: dt.datetime | None = None


@dataclass(frozen=True, slots=True)
class Axis:
    """Where a moment lies between the start and the end; by number where times do not tell."""

    start: Moment
    end: Moment

    @property
    def by_time(self) -> bool:
        """Whether times tell anything apart."""
        return self.start.at is not None and self.end.at is not None and self.start.at < self.end.at

    def cells(self, since: Moment, until: Moment | None, count: int) -> tuple[int, int]:
        """Return the first cell of *count* that a span takes, and the one after its last.

        A span ends where the next begins, and takes one cell however short it is.
        """
        first = min(self._cell(since, count), count - 1)
        return first, max(self._cell(until or self.end, count), first + 1)

    def _cell(self, moment: Moment, count: int) -> int:
        return math.floor(self._share(moment) * count + ROUNDING)

    def _share(self, moment: Moment) -> float:
        if not self.by_time:
            return (moment.seq - self.start.seq) / max(1, self.end.seq - self.start.seq)
        assert self.start.at is not None
        assert self.end.at is not None
        at = moment.at or self.start.at
        return min(max((at - self.start.at) / (self.end.at - self.start.at), 0.0), 1.0)


class Layout(NamedTuple):
    """The columns of a row: of its name, its bar and its duration; what is said takes the rest."""

    name: int
    bar: int
    taken: int


def draw(
    entries: Iterable[ev.Entry],
    *,
    width: int,
    run_id: str = "",
    now: dt.datetime | None = None,
    colour: bool = False,
    ascii_only: bool = False,
    rows_max: int | None = ROWS_MAX,
    all_flag: str = "--all",
) -> list[str]:
    """Return the run whose journal is *entries* as lines of at most *width* columns.

    *now* is where the bars of a run that goes on end; without it they end at the last entry.
    Of more than *rows_max* rows a line tells how many are left out, and that *all_flag* shows them.
    """
    assert width >= 1
    run = Reader(run_id=plain(run_id))
    lanes = sorted((lane for entry in entries for lane in run.take(entry)), key=_place)
    look = Look(width, colour, ascii_only, rows_max, all_flag, now)
    return [_shown(line, look) for line in _lines(run, lanes, look)]


def _place(lane: Lane) -> tuple[int, tuple[int, ...]]:
    """Positions are given as the code asks, also to a wait that the journal tells of later."""
    return lane.segment, path_order(lane.path) if is_path(lane.path) else ()


def _lines(run: Reader, lanes: list[Lane], look: Look) -> Iterator[Line]:
    if run.start is None:
        yield [Piece("the journal is empty")]
        return
    yield from _header(run, look)
    if not lanes:
        return
    left_out = 0 if look.rows_max is None else max(0, len(lanes) - max(1, look.rows_max))
    shown = len(lanes) - left_out
    first, last = lanes[: (shown + 1) // 2], lanes[len(lanes) - shown // 2 :]
    layout = _layout(first + last, run, look)
    axis = Axis(run.start, Moment(run.end(look.now), run.latest.seq + 1))
    if layout.bar:
        yield [Piece(" " * layout.name + GAP), Piece(_scale(axis, layout.bar), "2")]
    used: set[str] = set()
    segment = 1
    for place, lane in enumerate(first + last):
        if place == len(first) and left_out:
            yield [Piece(f"{counted(left_out, 'row')} left out here, {look.all_flag} shows all", "1")]
        if lane.segment != segment:
            segment = lane.segment
            yield [Piece(_separator(segment, look), "2")]
        yield _row(lane, axis, layout, run, look, used)
    if layout.bar:
        yield from ([Piece(line, "2")] for line in _legend(used, look))


def _header(run: Reader, look: Look) -> Iterator[Line]:
    """Who, what, how it stands and how long it took; then the counts; then why it failed."""
    status = words.status(run)
    total = run.seconds(look.now)
    named = [run.run_id, f"{run.workflow} {run.version}".strip()]
    line = [Piece(each + GAP, "1") for each in named if each]
    line.append(Piece(status, COLOURS.get(status, "33")))
    if total is not None:
        line.append(Piece(GAP + duration(total) + ("" if run.state.ended else " so far")))
    yield line
    counts = [words.steps(run, look.now), words.others(run)]
    if run.segment > 1:
        counts.append(counted(run.segment, "segment"))
    yield [Piece("; ".join(each for each in counts if each))]
    if run.state.ended and run.ending is not None and not isinstance(run.ending, ev.ExecutionCompleted):
        yield [Piece(words.ending(run.ending), COLOURS.get(status, ""))]


def _layout(lanes: list[Lane], run: Reader, look: Look) -> Layout:
    """Share the width: names and words get what they need up to a third each, bars the rest."""
    third = max(look.width // 3, 1)
    name = min(max(columns(_name(lane, look)) for lane in lanes), third)
    taken = max(len(_taken(lane, run, look)) for lane in lanes)
    said = min(max(columns(_said(lane, look)) for lane in lanes), third)
    bar = look.width - name - taken - said - 3 * len(GAP)
    return Layout(name, bar if bar >= BAR_COLUMNS_MIN else 0, taken)


def _row(lane: Lane, axis: Axis, layout: Layout, run: Reader, look: Look, used: set[str]) -> Line:
    line = [Piece(padded(_name(lane, look), layout.name) + GAP)]
    if layout.bar:
        cells = _bar(lane, axis, layout.bar)
        used.update(cells)
        line += [_ink(cell, len(list(group)), look) for cell, group in groupby(cells)]
        line.append(Piece(GAP))
    line.append(Piece(f"{_taken(lane, run, look):>{layout.taken}}" + GAP))
    room = look.width - sum(columns(piece.text) for piece in line)
    said = cut(_said(lane, look), max(room, 0))
    ink = INKS.get(lane.state)
    line.append(Piece(said, COLOURS.get(lane.state, "") if ink is None else ink.colour))
    return line


def _bar(lane: Lane, axis: Axis, count: int) -> list[str]:
    """Return what each of *count* cells shows; "" is nothing."""
    cells = [""] * count
    for span in sorted(lane.spans, key=lambda span: _ORDER[span.state]):
        first, after = axis.cells(span.start, span.end, count)
        cells[first:after] = [span.state] * (after - first)
    for span in lane.spans:
        if span.failed:
            cells[axis.cells(span.start, span.end, count)[1] - 1] = "failed"
    tip = axis.cells(lane.spans[0].start, lane.spans[-1].end, count)[1] - 1
    if lane.state not in CLOSED:
        cells[tip] = "open"
    else:  # how it ended is seen even where a whole story is squeezed into one cell
        cells[tip] = lane.spans[-1].state if lane.state == "done" else lane.state
    return cells


def _ink(cell: str, count: int, look: Look) -> Piece:
    if not cell:
        return Piece(" " * count)
    ink = INKS[cell]
    return Piece((ink.plain if look.ascii_only else ink.character) * count, ink.colour)


def _scale(axis: Axis, count: int) -> str:
    """Return the scale over *count* columns: its start, perhaps its middle, and its end."""
    if not axis.by_time:
        why = "no times" if axis.end.at is None else "all at one time"
        return cut(f"in order ({why})", count)
    assert axis.start.at is not None
    assert axis.end.at is not None
    total = (axis.end.at - axis.start.at).total_seconds()
    end = duration(total)
    begin = "0"
    if count >= MIDDLE_COLUMNS_MIN:
        begin = begin.ljust(count // 2) + duration(total / 2)
    return begin + end.rjust(count - len(begin))


def _legend(used: set[str], look: Look) -> list[str]:
    """Return what the characters in use mean, on as many lines as it takes."""
    lines: list[str] = []
    for state, ink in INKS.items():
        if state not in used:
            continue
        said = f"{ink.plain if look.ascii_only else ink.character} {ink.means}"
        if lines and columns(lines[-1] + GAP + said) <= look.width:
            lines[-1] += GAP + said
        else:
            lines.append(said)
    return lines


def _separator(segment: int, look: Look) -> str:
    rule = "-" if look.ascii_only else "─"
    said = f"{rule * 2} segment {segment:,} "
    return said + rule * max(0, look.width - len(said))


def _name(lane: Lane, look: Look) -> str:
    name = f"{lane.path} {words.label(lane)}"
    return ascii_form(name) if look.ascii_only else name


def _said(lane: Lane, look: Look) -> str:
    said = words.standing(lane, look.now)
    return ascii_form(said) if look.ascii_only else said


def _taken(lane: Lane, run: Reader, look: Look) -> str:
    """Return how long *lane* took, or nothing where times are missing."""
    seconds = lane.seconds(run.end(look.now))
    return "" if seconds is None else duration(seconds)


def _shown(line: Line, look: Look) -> str:
    if look.ascii_only:
        line = [Piece(ascii_form(piece.text), piece.colour) for piece in line]
    merged: Line = []
    for piece in line:
        if merged and merged[-1].colour == piece.colour:
            merged[-1] = Piece(merged[-1].text + piece.text, piece.colour)
        else:
            merged.append(piece)
    return line_of(merged, look.width, colour=look.colour)
