"""Kill a worker at every point between taking a start command and letting go of it: there is one run."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.faults.audit import body_findings, completed_keys, journal_findings, journals
from tests.faults.command_case import RUN_ID, SETTLED, TAKEN, command
from tests.faults.ledger import Ledger
from tests.faults.nursery import Nursery
from tests.faults.place import store_file
from tidewheel.journal import events as ev

FOLLOW = "tests.faults.command_case:follow"
KILLED = -9
#: Cases at a time: they wait more than they work.
AT_A_TIME = 2


class Case:
    """One way to die with a command."""

    def __init__(self, nursery: Nursery, folder: Path, *, opens: bool) -> None:
        self._nursery = nursery
        self._folder = folder
        self._opens = opens

    async def prepare(self, blank: Path, times: int = 1) -> None:
        """Let the command be there, and nobody to take it."""
        shutil.copytree(blank, self._folder)
        await command(self._folder, times)

    async def record(self) -> list[str]:
        """Follow the command without dying; return the points that were passed."""
        points: list[str] = await self._nursery.call(
            FOLLOW, folder=str(self._folder), point=None, opens=self._opens
        )
        assert self.findings() == []
        return points

    async def die(self, point: str) -> tuple[bool, list[str]]:
        """Die at *point*, begin anew; return whether it was passed, and what is wrong then."""
        child = await self._nursery.start(FOLLOW, folder=str(self._folder), point=point, opens=self._opens)
        code = await child.code()
        if code not in (0, KILLED):
            return False, [child.said()[-3_000:]]
        done, executed = completed_keys(store_file(self._folder)), len(Ledger(self._folder).lines())
        again = await self._nursery.start(FOLLOW, folder=str(self._folder), point=None, opens=self._opens)
        if await again.code() != 0:
            return code == KILLED, [again.said()[-3_000:]]
        late = [line for line in Ledger(self._folder).lines()[executed:] if line.key in done]
        return code == KILLED, [*self.findings(), *(f"{line} was completed before" for line in late)]

    def findings(self) -> list[str]:
        """Return everything that is wrong once the run has ended."""
        known = journals(store_file(self._folder))
        wrong = [*journal_findings(self._folder), *body_findings(known, Ledger(self._folder).lines())]
        if list(known) != [RUN_ID]:
            return [*wrong, f"there are the runs {list(known)}"]
        events = [entry.event for entry in known[RUN_ID][1]]
        if sum(isinstance(event, ev.ExecutionStarted) for event in events) != 1:
            wrong.append("it was started more than once")
        if events[-1] != ev.ExecutionCompleted(result=ev.Result(ok=["pen charged", "pen sent"])):
            wrong.append(f"it came to {events[-1]}")
        return wrong


@pytest.mark.parametrize("opens", [True, False], ids=["opens", "stores"])
async def test_a_worker_that_dies_with_a_start_command_leaves_one_run_that_ends(
    nursery: Nursery, folder: Path, blank: Path, opens: bool
) -> None:
    """The broker has the command until the run is written, and whoever gets it next goes on with that.

    Each step is completed once, no attempt is executed twice, and no command is a dead letter.
    """
    first = Case(nursery, folder / "recorded", opens=opens)
    await first.prepare(blank)
    points = await first.record()
    turns = asyncio.Semaphore(AT_A_TIME)

    async def die(number: int, point: str) -> tuple[bool, list[str]]:
        async with turns:
            case = Case(nursery, folder / f"case-{number}", opens=opens)
            await case.prepare(blank)
            return await case.die(point)

    cases = await asyncio.gather(*(die(number, point) for number, point in enumerate(points)))

    assert (points[0], points[-1]) == (f"{TAKEN}#1", f"{SETTLED}#1")
    assert any(point.startswith("store.submit[Start,") for point in points) is opens
    assert {point: wrong for point, (_, wrong) in zip(points, cases, strict=True) if wrong} == {}
    # What happens at the same time may happen in another order: a few are not passed.
    assert sum(has_died for has_died, _ in cases) >= 0.8 * len(cases)


async def test_a_command_that_is_there_often_is_one_run_whoever_dies(
    nursery: Nursery, folder: Path, blank: Path
) -> None:
    """Repeated by whoever published it, and taken by a worker that dies with all of them in hand."""
    points = ["delivery[StartCommand]:after#3", "body[pen charged]:before#1", "body[pen sent]:after#1"]
    found: dict[str, Any] = {}
    for number, point in enumerate(points):
        case = Case(nursery, folder / f"case-{number}", opens=True)
        await case.prepare(blank, times=3)
        found[point] = await case.die(point)

    assert found == {point: (True, []) for point in points}
