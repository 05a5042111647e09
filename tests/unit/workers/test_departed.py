"""Who has vanished is given up again for a while."""

from __future__ import annotations

from tidewheel.workers.departed import ROUNDS, Departed


def test_nobody_has_departed_who_was_never_there() -> None:
    """A keeper that has just begun knows nobody."""
    departed = Departed()

    assert departed.round([]) == []
    assert departed.round(["a", "b"]) == []
    assert departed.round(["a", "b"]) == []


def test_who_has_vanished_is_given_up_in_each_of_the_next_rounds() -> None:
    """And not for ever."""
    departed = Departed()
    departed.round(["a", "b"])

    assert [departed.round(["b"]) for _ in range(ROUNDS + 2)] == [["a"]] * ROUNDS + [[], []]


def test_who_has_come_back_is_left_alone() -> None:
    """It was taken for dead, and was not."""
    departed = Departed()
    departed.round(["a"])
    departed.round([])

    assert departed.round(["a"]) == []
    assert departed.round(["a"]) == []
