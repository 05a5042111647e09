"""When a process that ended is started again."""

from __future__ import annotations

from tidewheel.workers.restarting import (
    PAUSE_FIRST_S,
    PAUSE_MAX_S,
    STARTS_PER_MINUTE_MAX,
    WELL_AFTER_S,
    Restarts,
)


def test_pauses_double_up_to_a_bound() -> None:
    """One that dies at once is not started again at once, each time."""
    restarts = Restarts()
    now, pauses = 0.0, []

    for _ in range(STARTS_PER_MINUTE_MAX - 1):
        restarts.began(now)
        pauses.append(restarts.pause_s(now))
        now += pauses[-1]

    assert pauses[:3] == [PAUSE_FIRST_S, 2 * PAUSE_FIRST_S, 4 * PAUSE_FIRST_S]
    assert pauses[-1] == PAUSE_MAX_S


def test_whatever_lived_for_a_while_is_started_again_soon() -> None:
    """A death after a good life says nothing about the next one."""
    restarts = Restarts()
    for _ in range(5):
        restarts.began(0.0)
        restarts.pause_s(0.0)

    restarts.began(100.0)
    pause_s = restarts.pause_s(100.0 + WELL_AFTER_S)

    assert pause_s == PAUSE_FIRST_S


def test_a_child_is_started_a_bounded_number_of_times_a_minute() -> None:
    """However it ends: in every minute there are at most so many starts."""
    restarts = Restarts()
    now, starts = 0.0, []

    for _ in range(100):
        starts.append(now)
        restarts.began(now)
        now += 0.001
        now += restarts.pause_s(now)

    within = [sum(begun <= each < begun + 60.0 for each in starts) for begun in starts]
    assert max(within) == STARTS_PER_MINUTE_MAX
