"""The tests of this tier notice when the code is broken."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.faults.audit import journals
from tests.faults.nursery import Nursery
from tests.faults.place import Place, eventually, store_file
from tests.faults.test_crash_points import recorded
from tests.faults.test_rivals import told_over_and_over
from tidewheel.journal.verify import Breach, verify

#: Points within a turn that a delivery led to: the run's message is in hand, and nobody else was told.
WITHIN_A_TURN = ("body[threaded]:after#1", "store.submit[moves,ExecutionResumed,JoinSetCreated,")


async def die_without_keeper(nursery: Nursery, folder: Path, blank: Path, **how: Any) -> dict[str, Any]:
    """Die at a point, and recover with nobody but the broker to tell of the run."""
    case: dict[str, Any] = await nursery.call(
        "tests.faults.crash_case:die_and_recover", folder=str(folder), blank=str(blank), keeper=False, **how
    )
    assert case["deaths"] == 1
    return case


@pytest.mark.parametrize("point", WITHIN_A_TURN)
async def test_a_message_is_acknowledged_only_when_its_work_is_committed(
    point: str, nursery: Nursery, folder: Path, blank: Path
) -> None:
    """The broker delivers it again, without a keeper; acknowledged before the append it is lost (K6)."""
    seen = await recorded(nursery, folder, blank)
    point = next(passed for passed in seen["points"] if passed.startswith(point))

    right = await die_without_keeper(nursery, folder / "right", blank, points=[point])
    wrong = await die_without_keeper(
        nursery, folder / "wrong", blank, points=[point], mutant="acknowledge_first"
    )

    assert right["wrong"] == []
    assert wrong["wrong"] != []


async def test_without_the_fence_two_workers_spoil_a_journal(place: Place) -> None:
    """Moves that are committed whatever came between break a rule where two workers have the same runs."""
    await place.serve(keeper=False, mutant="ignore_the_fence")
    await place.serve(mutant="ignore_the_fence")

    telling = asyncio.create_task(told_over_and_over(place))
    try:
        broken = await eventually(lambda: telling.done() or broken_rules(place), "damage")
    finally:
        telling.cancel()
        await asyncio.wait([telling])

    assert broken is not True, "both workers came through without the fence"


def broken_rules(place: Place) -> list[Breach]:
    """Return every breach of every rule in the journals so far."""
    return [
        breach for _, entries in journals(store_file(place.folder)).values() for breach in verify(entries)
    ]
