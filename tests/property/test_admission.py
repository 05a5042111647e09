"""What becomes of one more run, whatever the limit and the load."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidewheel.store.admission import OVERLOADS, PAUSE_MAX_S, Granted, QueueLimit, QueueLoad, Refused, decide

numbers = st.integers(0, 50)
limits = st.builds(
    QueueLimit,
    namespace=st.just("default"),
    queue=st.just("main"),
    max_running=numbers,
    max_pending=numbers,
    overload=st.sampled_from(OVERLOADS),
    pause_s=st.floats(0.001, 1e6),
)
loads = st.builds(QueueLoad, limit=limits, running=numbers, pending=numbers)


@given(loads)
def test_a_run_begins_exactly_if_there_is_room_for_it_and_all_that_wait(load: QueueLoad) -> None:
    """So the limit is never exceeded, and nobody is overtaken for want of room."""
    verdict = decide(load)

    has_room = load.running + load.pending < load.limit.max_running
    assert (isinstance(verdict, Granted) and verdict.place == "running") is has_room


@given(loads)
def test_a_run_is_queued_only_where_it_may_wait(load: QueueLoad) -> None:
    """Never under ``reject``, never over ``max_pending``; else it is not refused."""
    verdict = decide(load)

    may_wait = load.limit.overload != "reject" and load.pending < load.limit.max_pending
    has_room = load.running + load.pending < load.limit.max_running
    if isinstance(verdict, Refused):
        assert not may_wait
        assert not has_room
        assert 0 < verdict.retry_after_s <= PAUSE_MAX_S
    elif verdict.place == "queued":
        assert may_wait


@given(loads)
def test_a_delay_grows_with_how_many_are_over(load: QueueLoad) -> None:
    """One more that waits never makes it shorter; only ``delay`` delays."""
    more = QueueLoad(limit=load.limit, running=load.running, pending=load.pending + 1)
    before, after = decide(load), decide(more)

    if isinstance(before, Granted) and isinstance(after, Granted):
        assert before.after_s <= after.after_s <= PAUSE_MAX_S
        assert load.limit.overload == "delay" or after.after_s == 0.0


@given(limits, st.lists(st.booleans(), max_size=200))
def test_a_queue_that_starts_and_ends_as_it_likes_keeps_its_limits(
    limit: QueueLimit, happens: list[bool]
) -> None:
    """Starts are decided, ends admit those that wait: neither count ever exceeds what may be."""
    running = pending = 0
    for is_start in happens:
        if is_start:
            verdict = decide(QueueLoad(limit=limit, running=running, pending=pending))
            if isinstance(verdict, Granted):
                running, pending = (
                    (running + 1, pending) if verdict.place == "running" else (running, pending + 1)
                )
        elif running:
            running -= 1
            if pending and not QueueLoad(limit=limit, running=running, pending=pending).is_full:
                running, pending = running + 1, pending - 1

        assert running <= limit.max_running
        assert pending <= limit.max_pending
