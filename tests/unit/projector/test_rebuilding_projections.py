"""Filling the table of a projection again: every event counts once, whoever reads it meanwhile."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from tests.unit.projector.stage import Stage
from tests.unit.projector.test_projections import StepsDone, a_sink, rows
from tidewheel import PublicEvent
from tidewheel.projector.rebuilding_projections import ProjectedAgain, project_again
from tidewheel.sdk.projections import ProjectionDefinition, projection_definition
from tidewheel.store.errors import Unreadable
from tidewheel.store.records import RunRef


def a_definition(cls: type[Any] = StepsDone) -> ProjectionDefinition:
    """Return the definition of the projection that ``a_sink`` keeps."""
    return projection_definition(cls, name="steps", table="steps_done")


async def test_a_damaged_table_is_what_the_journals_give(stage: Stage) -> None:
    """Whatever was in it; it says how far it is."""
    for number in range(60):
        await stage.live(f"r-{number}")
    await project_again(stage.store, a_definition(), "default")
    table = stage.store.projections.tables["steps_done"]
    table["charge",] = ("charge", 7, 0)
    table["nonsense",] = ("nonsense", 1, 1)
    seen: list[int] = []

    found = await project_again(
        stage.store, a_definition(), "default", progress=lambda told: seen.append(told.runs)
    )

    assert found == ProjectedAgain(projection="steps", runs=60)
    assert seen == [50, 60]
    assert rows(stage) == {"charge": (180, 0), "runs": (0, 60)}


async def test_projectors_go_on_meanwhile(stage: Stage) -> None:
    """What they read at the same time is not counted twice, and what comes after that is counted too."""
    await stage.begin(sinks=[a_sink(stage)])
    runs = [await stage.live(f"r-{number}") for number in range(20)]
    publishing = [asyncio.ensure_future(stage.publish(await stage.events(run))) for run in runs]

    await project_again(stage.store, a_definition(), "default")
    await asyncio.gather(*publishing)
    late = await stage.live("late")
    await stage.publish(await stage.events(late))
    await stage.becomes_true(*runs, late)
    await stage.is_settled()

    assert rows(stage) == {"charge": (63, 0), "runs": (0, 21)}


async def test_a_dry_run_empties_nothing(stage: Stage) -> None:
    """It counts the runs."""
    await stage.live("r")
    await project_again(stage.store, a_definition(), "default")
    before = rows(stage)

    found = await project_again(stage.store, a_definition(), "default", dry_run=True)

    assert found == ProjectedAgain(projection="steps", runs=1, dry_run=True)
    assert rows(stage) == before


async def test_what_cannot_be_read_is_named_and_the_rest_is_counted(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A journal that is torn, and code that fails on an event: each is that run's alone."""

    @dataclass(frozen=True)
    class Failing(StepsDone):
        @classmethod
        def key(cls, event: PublicEvent) -> str | None:
            if event.run_id == "odd" and event.step_id == "step-1":
                raise KeyError("nobody thought of this")
            return StepsDone.key(event)

    for name in ("good", "odd", "torn"):
        await stage.live(name)
    journal = stage.store.journal

    async def unreadable(run: RunRef) -> object:
        if run.run_id == "torn":
            raise Unreadable("torn", 0, "torn")
        return await journal(run)

    monkeypatch.setattr(stage.store, "journal", unreadable)

    found = await project_again(stage.store, a_definition(Failing), "default")

    assert (found.runs, found.failed, sorted(found.failures)) == (3, 2, ["odd", "torn"])
    assert "nobody thought of this" in found.failures["odd"]
    assert rows(stage) == {"charge": (4, 0), "runs": (0, 1)}
