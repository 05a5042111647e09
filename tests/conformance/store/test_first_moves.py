"""First moves that name keys, start children, or end the run: only its start has to be known for them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.conformance.store.driving import Run, ends, task, waits
from tests.conformance.store.inside import Inside, InsidePostgres
from tests.conformance.store.test_publishing import check
from tidewheel.journal import events as ev
from tidewheel.store.append import ChildStart, Fate
from tidewheel.store.postgres.store import PostgresStore

CHILD = ChildStart(workflow="mail", version="", digest="", queue="post")


async def test_a_keyed_step_in_the_first_moves_is_known_by_its_key(inside: Inside) -> None:
    """As in any later move."""
    run = Run(inside.store, "r")

    answer = await run.open(task("0", key="charge", dispatch="inline"), task("1", key="1"), waits("0", "1"))

    assert answer.fate is Fate.COMMITTED
    assert [(await run.step(path)).step_id for path in ("0", "1")] == ["charge", "1"]
    await check(inside, run)


async def test_a_keyed_child_is_started_by_the_first_moves(inside: Inside) -> None:
    """A workflow whose first turn is ``ctx.invoke(child, key="c")``."""
    run = Run(inside.store, "r")
    asked = task("0", kind="workflow", dispatch="queued", key="c")

    answer = await run.open(asked, waits("0"), children={"0": CHILD})

    assert answer.fate is Fate.COMMITTED
    await check(inside, run)


@pytest.fixture
async def postgres(journals: str) -> AsyncIterator[PostgresStore]:
    """A store that has heard of the database's clock."""
    opened = await PostgresStore.open(journals)
    await Run(opened, "first").start()
    yield opened
    await opened.close()


@pytest.mark.parametrize("first", [(ends(1),), (task("0", dispatch="inline"), ends(1))])
async def test_a_run_that_ends_in_its_first_moves_costs_one_exchange(
    postgres: PostgresStore, journals: str, first: tuple[ev.Event, ...]
) -> None:
    """Its name says whether it is there."""
    run = Run(postgres, "r")
    before = postgres.counters.round_trips

    answer = await run.open(*first)

    assert (answer.fate, postgres.counters.round_trips - before) == (Fate.COMMITTED, 1)
    await check(InsidePostgres(postgres, journals), run)


@pytest.mark.parametrize(
    "first",
    [
        (task("0", dispatch="queued"), waits("0")),
        (ev.ExecutionContinued(input=[2], next_position=5), ev.ExecutionStarted(input=[2])),
    ],
    ids=["a queued step", "the next segment"],
)
async def test_a_run_that_was_written_with_its_first_moves_has_no_sketch(
    postgres: PostgresStore, first: tuple[ev.Event, ...]
) -> None:
    """What a hint carries is a run as its start left it; this one went on."""
    answer = await Run(postgres, "r").open(*first)

    assert [hint.sketch for hint in answer.hints] == [None]
