"""Users' projections: every event counts once, whatever the bus and the code do."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any

from tests.unit.projector.stage import Stage, eventually, without
from tidewheel import PublicEvent
from tidewheel.projector.projection_sink import ProjectionSink
from tidewheel.sdk.projections import projection_definition

GAP = "PROJECTOR_GAP_DETECTED"


@dataclass(frozen=True)
class StepsDone:
    """How many steps were done, by name."""

    name: str
    count: int = 0
    runs_ended: int = 0

    @classmethod
    def key(cls, event: PublicEvent) -> str | None:
        """Return the step's name; the end of a run counts under a name of its own."""
        if event.event_type == "RunCompleted":
            return "runs"
        return event.step_name if event.event_type == "StepCompleted" else None

    def reduce(self, event: PublicEvent) -> StepsDone:
        """Count it."""
        if event.event_type == "RunCompleted":
            return replace(self, runs_ended=self.runs_ended + 1)
        return replace(self, count=self.count + 1)


def a_sink(stage: Stage, cls: type[Any] = StepsDone) -> ProjectionSink:
    """Return the sink of a projection."""
    return ProjectionSink(stage.store, projection_definition(cls, name="steps", table="steps_done"))


def rows(stage: Stage) -> dict[str, tuple[int, int]]:
    """Return what is in the table."""
    return {row[0]: (row[1], row[2]) for row in stage.store.projections.tables["steps_done"].values()}


async def test_a_projection_is_kept_with_the_snapshots(stage: Stage) -> None:
    """Over many runs, with everything delivered twice, by two projectors."""
    for _ in range(2):
        await stage.begin(sinks=[a_sink(stage)])
    await asyncio.sleep(10)
    runs = [await stage.live(f"r-{number}") for number in range(20)]

    for run in runs:
        await stage.publish([*await stage.events(run), *await stage.events(run)])

    await stage.becomes_true(*runs)
    await stage.is_settled()
    assert rows(stage) == {"charge": (60, 0), "runs": (0, 20)}
    assert stage.alerts == []


async def test_a_gap_is_closed_for_projections_too(stage: Stage) -> None:
    """What is read from the journal counts once, and what comes late counts no more."""
    await stage.begin(sinks=[a_sink(stage)])
    run = await stage.live("r", 5)
    events = await stage.events(run)

    await stage.publish(without(events, 3, 4))
    await stage.becomes_true(run)
    await stage.is_settled()
    await stage.publish(events)
    await stage.is_settled()

    assert rows(stage) == {"charge": (5, 0), "runs": (0, 1)}
    assert stage.alert_names == [GAP]


async def test_a_projection_that_is_added_later_reads_what_was_before(stage: Stage) -> None:
    """The look finds that it has not seen the runs there are; nobody is alarmed by that."""
    first = await stage.begin()
    runs = [await stage.live(f"r-{number}") for number in range(3)]
    for run in runs:
        await stage.publish(await stage.events(run))
    await stage.becomes_true(*runs)
    await first.stop()

    await stage.begin(sinks=[a_sink(stage)], look_s=1.0, quiet_s=1.0)

    async def is_read() -> bool:
        return rows(stage) == {"charge": (9, 0), "runs": (0, 3)}

    await eventually(is_read)


async def test_code_that_fails_holds_up_its_run_and_is_made_good_when_it_is_corrected(stage: Stage) -> None:
    """The event is a dead letter; snapshots and other runs go on, and the corrected code reads it again."""

    @dataclass(frozen=True)
    class Failing(StepsDone):
        @classmethod
        def key(cls, event: PublicEvent) -> str | None:
            if event.run_id == "bad" and event.step_id == "step-1":
                raise KeyError("nobody thought of this")
            return StepsDone.key(event)

    failing = await stage.begin(sinks=[a_sink(stage, Failing)], look_s=1.0, quiet_s=1.0)
    bad, good = await stage.live("bad"), await stage.live("good")
    for run in (bad, good):
        await stage.publish(await stage.events(run))
    await stage.becomes_true(bad, good)
    await stage.is_settled()
    await asyncio.sleep(5)
    before = rows(stage)
    await failing.stop()

    await stage.begin(sinks=[a_sink(stage)], look_s=1.0, quiet_s=1.0)

    async def is_read() -> bool:
        return rows(stage) == {"charge": (6, 0), "runs": (0, 2)}

    await eventually(is_read)
    assert before == {"charge": (4, 0), "runs": (0, 1)}
    assert await stage.dead_letters() == 1


async def test_a_run_that_is_gone_or_has_published_nothing_gives_nothing(stage: Stage) -> None:
    """Neither is an error."""
    sink = a_sink(stage)
    run = await stage.live("r")
    events = await stage.events(run)
    stage.store.rows.forget(stage.store.rows.by_ref[run.ref])

    assert await sink.heal(run.ref) is None
    assert (await sink.take({run.ref: events}))[run.ref].seq == events[-1].run_seq
    assert rows(stage) == {}
