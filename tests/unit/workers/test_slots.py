"""Slots: so many at a time, first come first served, and nothing is lost when somebody leaves."""

from __future__ import annotations

import asyncio

from tidewheel.workers.slots import Slots


async def test_who_finds_no_slot_free_gets_the_next_in_the_order_of_asking() -> None:
    """Tasks and those who are called stand in one queue."""
    slots, order = Slots(1), list[str]()
    assert slots.take()
    slots.queue_up(lambda: _begin(order, "called"))
    waits = asyncio.ensure_future(slots.wait())
    await asyncio.sleep(0)

    assert (slots.take(), slots.taken, slots.waiting) == (False, 1, 2)
    slots.give_back()
    assert (order, waits.done(), slots.waiting) == (["called"], False, 1)
    slots.give_back()
    await waits
    slots.give_back()
    assert (slots.taken, slots.waiting) == (0, 0)


async def test_the_turn_of_who_has_left_is_the_next_ones() -> None:
    """Whether it was to be called, or was a task that was cancelled."""
    slots, order = Slots(1), list[str]()
    assert slots.take()
    slots.queue_up(lambda: False)
    slots.leave()
    cancelled = asyncio.ensure_future(slots.wait())
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    slots.queue_up(lambda: _begin(order, "stayed"))

    assert slots.waiting == 1
    slots.give_back()
    assert (order, slots.taken, slots.waiting) == (["stayed"], 1, 0)


async def test_a_slot_that_came_when_its_task_was_cancelled_is_passed_on() -> None:
    """It was given, and nobody is there to use it."""
    slots = Slots(1)
    assert slots.take()
    waits = asyncio.ensure_future(slots.wait())
    await asyncio.sleep(0)

    slots.give_back()
    waits.cancel()
    await asyncio.gather(waits, return_exceptions=True)

    assert waits.cancelled()
    assert (slots.taken, slots.waiting) == (0, 0)


def _begin(order: list[str], who: str) -> bool:
    order.append(who)
    return True
