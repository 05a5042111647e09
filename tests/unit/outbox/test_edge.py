"""Where a pass through the outbox begins: near what was claimed lately, and at the beginning often enough."""

from __future__ import annotations

from tidewheel.outbox.edge import REMEMBERED, WHOLE_S, Edge

LOW, MIDDLE, HIGH = b"\x01\x00", b"\x02\x00", b"\x03\x00"


def test_the_first_pass_is_a_whole_one() -> None:
    """Nothing is known yet."""
    assert Edge().begin(5.0) == b""


def test_the_next_pass_begins_right_before_the_lowest_run_that_was_claimed() -> None:
    """That run is looked at again: it may owe more."""
    edge = Edge()
    edge.begin(5.0)
    edge.note([HIGH, MIDDLE])

    begins = edge.begin(5.0 + WHOLE_S / 2)

    assert b"" < begins < MIDDLE
    assert begins > LOW


def test_a_whole_pass_is_begun_in_time() -> None:
    """A key that appears below is passed over for no longer."""
    edge = Edge()
    edge.begin(5.0)
    edge.note([HIGH])

    passes = [edge.begin(5.0 + WHOLE_S / 4 * quarter) for quarter in range(1, 9)]

    assert [place for place, begins in enumerate(passes, 1) if begins == b""] == [4, 8]


def test_passes_are_whole_ones_while_nothing_was_ever_claimed() -> None:
    """There is no edge to begin at."""
    edge = Edge()
    edge.begin(5.0)
    edge.note([])

    assert edge.begin(5.0 + WHOLE_S / 2) == b""


def test_what_only_a_part_of_the_outbox_gave_does_not_move_the_edge() -> None:
    """The pass began at the edge: it has not seen what is below."""
    edge = Edge()
    edge.begin(5.0)
    edge.note([MIDDLE])
    edge.begin(5.0 + WHOLE_S / 4)
    edge.note([HIGH])

    assert edge.begin(5.0 + WHOLE_S / 2) < MIDDLE


def test_the_edge_follows_what_is_claimed() -> None:
    """A run that nothing was claimed of for some passes is left to the whole ones."""
    edge = Edge()
    now_s = 5.0
    for lowest in [LOW, *[HIGH] * REMEMBERED]:
        edge.begin(now_s)
        edge.note([lowest])
        now_s += WHOLE_S

    edge.begin(now_s)
    edge.note([HIGH])

    assert edge.begin(now_s + WHOLE_S / 2) > MIDDLE
