"""What holds for the drawing and the story of any journal, sensible or not."""

from __future__ import annotations

import datetime as dt
import re

from hypothesis import given
from hypothesis import strategies as st

from tests.property.test_public_fold import ANY_EVENT, AT, JOURNALS, LIKELY
from tidewheel.cli.timeline import RunProgress, draw
from tidewheel.cli.timeline.text import columns
from tidewheel.journal import events as ev

SGR = re.compile(r"\x1b\[[0-9]+m")
TIMES = st.none() | st.floats(-5, 5000).map(lambda seconds: AT + dt.timedelta(seconds=seconds))
ANY_JOURNAL = st.lists(st.tuples(TIMES, LIKELY | ANY_EVENT), max_size=25).map(
    lambda rows: [ev.Entry(seq, at, event) for seq, (at, event) in enumerate(rows)]
)


@given(ANY_JOURNAL, st.integers(1, 160), TIMES, st.booleans(), st.none() | st.integers(0, 9))
def test_a_timeline_fits_its_width_whatever_the_journal(
    entries: list[ev.Entry], width: int, now: dt.datetime | None, ascii_only: bool, rows_max: int | None
) -> None:
    """No line is wider, none holds what a terminal would obey, and ASCII is ASCII."""
    lines = draw(entries, width=width, now=now, ascii_only=ascii_only, rows_max=rows_max)

    assert lines
    assert all(columns(line) <= width and line.isprintable() for line in lines)
    assert not ascii_only or all(line.isascii() for line in lines)


@given(ANY_JOURNAL, st.integers(1, 160), TIMES)
def test_colour_adds_nothing_but_colour(entries: list[ev.Entry], width: int, now: dt.datetime | None) -> None:
    """Without its codes a coloured line is the plain one."""
    coloured = draw(entries, width=width, now=now, colour=True)

    assert [SGR.sub("", line) for line in coloured] == draw(entries, width=width, now=now)


@given(JOURNALS | ANY_JOURNAL, st.integers(1, 160))
def test_the_live_line_and_the_stories_are_safe_text(entries: list[ev.Entry], width: int) -> None:
    """Each is one printable line; telling an entry first or observing it first is the same."""
    progress, other = RunProgress("r"), RunProgress("r")
    for entry in entries:
        other.observe(entry)
        story = progress.story(entry)

        assert story == other.story(entry)
        assert story is None or (story.isprintable() and columns(story) < 400)
        assert progress.line(AT) == other.line(AT)
        assert progress.line(AT).isprintable()
        assert columns(progress.line(AT, width)) <= width
