"""``testing.replay``: what today's code makes of a recorded journal."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import UNSET

from tests.unit.replay.journals import (
    awaiting,
    begun,
    child,
    done,
    fired,
    journal,
    resumed,
    step,
    task,
    timer,
    unchecked,
)
from tidewheel import App, Context, InvalidRequest
from tidewheel.journal import events as ev
from tidewheel.journal.jsonform import dumps
from tidewheel.testing import Environment, replay, verify

app = App("report")


@app.task
async def work(item: int) -> int:
    """A task."""
    return item


@app.workflow
async def double(ctx: Context, n: int) -> int:
    """Two steps."""
    return await ctx.invoke(work, n) + await ctx.invoke(work, n)


@app.workflow
async def fails(ctx: Context) -> None:
    """Fail after a step."""
    await ctx.invoke(work, 1)
    raise ValueError("no luck")


@app.workflow
async def sleeps(ctx: Context) -> None:
    """Sleep."""
    await ctx.sleep(1000)


@app.workflow
async def rolls(ctx: Context, left: int) -> str:
    """Continue as new a few times."""
    await ctx.invoke(work, left)
    if left:
        ctx.continue_as_new(left - 1)
    return "done"


@app.workflow
async def parent(ctx: Context) -> list[int]:
    """Two children."""
    return list(await asyncio.gather(ctx.invoke(double, 1), ctx.invoke(double, 2)))


TWO = [begun(1), step("0", "work", 1, 1), step("1", "work", 2, 1)]


def flat(*parts: Any) -> list[ev.Entry]:
    """Number nested lists of events."""
    found: list[ev.Event] = []
    for part in parts:
        found += [one.event for one in flat(*part)] if isinstance(part, list) else [part]
    return journal(found)


# Outcomes


def test_completed_gives_the_result() -> None:
    """The code returns what the journal says it returned."""
    report = replay(double, flat(TWO, ev.ExecutionCompleted(result=ev.Result(ok=3))))

    assert report.to_json() == {"outcome": "completed", "result": 3}


def test_blocked_gives_what_it_waits_for() -> None:
    """The journal ends in a suspension, and so does the code."""
    report = replay(double, flat(begun(1), step("0", "work", 1, 1), task("1", "work", 1), awaiting("1")))

    assert report.to_json() == {"outcome": "blocked", "waiting_on": ["1"]}


def test_failed_gives_the_error() -> None:
    """The code raises what the journal says it raised."""
    error = ev.Error(type="ValueError", message="no luck", retryable=True)
    report = replay(fails, flat(begun(), step("0", "work", 1, 1), ev.ExecutionFailed(error=error)))

    assert report.outcome == "failed"
    assert report.error == error


def test_cancelled() -> None:
    """The code lets the cancel through."""
    recorded = flat(
        begun(), timer("0", 1000), awaiting("0"), ev.CancelRequested(reason="x"), resumed("cancel"),
        ev.TimerCancelled(promise_id="0"), ev.ExecutionCancelled(reason="x"),
    )  # fmt: skip

    assert replay(sleeps, recorded).to_json() == {"outcome": "cancelled"}


def test_cancelled_before_the_first_activation() -> None:
    """No code ran, and none runs now."""
    recorded = flat(begun(), ev.CancelRequested(reason="x"), ev.ExecutionCancelled(reason="x"))

    assert replay(sleeps, recorded).to_json() == {"outcome": "cancelled"}


def test_continued() -> None:
    """A journal that ends with a segment: the code continues as new."""
    recorded = flat(begun(1), step("0", "work", 1, 1), ev.ExecutionContinued(input=[0], next_position=1))

    assert replay(rolls, recorded).to_json() == {"outcome": "continued"}


def test_violation_names_command_field_journal_and_code() -> None:
    """The report says where code and journal part."""
    report = replay(double, flat(begun(1), step("0", "other", 1, 1)))

    assert report.to_json() == {
        "outcome": "violation",
        "violation": {"command": "Task(0)", "field": "function_name", "journal": "other", "code": "work"},
    }


def test_orphans_are_listed() -> None:
    """Commands the code no longer asks for are named, and are a violation unless allowed."""
    recorded = flat(TWO, step("2", "work", 3, 1), timer("3", 5), awaiting("3"), fired("3"), resumed("3"))
    report = replay(double, recorded)

    assert report.outcome == "violation"
    assert report.orphaned == ["Task(2)", "Timer(0)"]

    @unchecked(allow_orphans=True)
    async def lenient(ctx: Context, n: int) -> int:
        return await ctx.invoke(work, n) + await ctx.invoke(work, n)

    allowed = replay(lenient, recorded)
    assert (allowed.outcome, allowed.result, allowed.orphaned) == ("completed", 3, ["Task(2)", "Timer(0)"])


def test_a_deadlocked_run_is_failed_again() -> None:
    """The code waits for nothing that can come, as the journal says."""

    @unchecked()
    async def stuck(ctx: Context) -> None:
        await asyncio.Event().wait()

    recorded = flat(begun(), ev.ExecutionFailed(error=ev.Error(type="Deadlock", message="...")))

    report = replay(stuck, recorded)
    assert report.outcome == "failed"
    assert report.error is not UNSET
    assert report.error.type == "Deadlock"


# Other ends


@pytest.mark.parametrize(
    ("recorded", "field", "had", "has"),
    [
        (ev.ExecutionCompleted(result=ev.Result(ok=4)), "result", 4, 3),
        (ev.ExecutionFailed(error=ev.Error(type="X")), "outcome", "ExecutionFailed", "ExecutionCompleted"),
        (ev.ExecutionContinued(input=[1]), "outcome", "ExecutionContinued", "ExecutionCompleted"),
    ],
)
def test_another_end_than_recorded_is_a_violation(recorded: ev.Event, field: str, had: Any, has: Any) -> None:
    """Commands that all match are not enough: the run must come to the same end."""
    report = replay(double, flat(TWO, recorded))

    assert report.outcome == "violation"
    assert report.violation is not UNSET
    assert report.violation.to_json() == {"command": "Return", "field": field, "journal": had, "code": has}


def test_another_error_than_recorded_is_a_violation() -> None:
    """Errors are compared by type."""
    ended = ev.ExecutionFailed(error=ev.Error(type="KeyError"))
    report = replay(fails, flat(begun(), step("0", "work", 1, 1), ended))

    assert report.violation is not UNSET
    assert (report.violation.journal, report.violation.code) == ("KeyError", "ValueError")


def test_code_that_goes_on_where_the_journal_ended_is_an_extension() -> None:
    """More commands than the journal has are allowed, also after the end of a finished run."""
    report = replay(
        double, flat(begun(1), step("0", "work", 1, 1), ev.ExecutionCompleted(result=ev.Result(ok=1)))
    )

    assert report.to_json() == {"outcome": "blocked", "waiting_on": ["1"]}


def test_code_that_skips_a_step_of_an_ended_run_and_goes_on_is_a_violation() -> None:
    """A finished run cannot come to ask for it any more."""

    @unchecked(name="double")
    async def other(ctx: Context, value: int) -> int:
        await ctx.sleep(1)
        return value

    ended = ev.ExecutionCompleted(result=ev.Result(ok=1))
    report = replay(other, flat(begun(1), step("0", "work", 1, 1), ended))

    assert report.outcome == "violation"
    assert report.orphaned == ["Task(0)"]


def test_a_run_that_ended_in_a_violation_may_fit_fixed_code() -> None:
    """It failed because the code of that day did not fit; today's may."""
    violated = ev.ExecutionFailed(error=ev.Error(type="DETERMINISM_VIOLATION"))

    assert replay(double, flat(TWO, violated)).outcome == "completed"


# Journals of all kinds


async def test_recorded_runs_replay_to_the_same_end() -> None:
    """Multi-segment journals, parents and children, as entries and as JSON text."""
    async with Environment(app) as env:
        await (await env.client.start(rolls, 3, run_id="rolls")).result()
        await (await env.client.start(parent, run_id="family")).result()
        for run_id, workflow, result in (
            ("rolls", rolls, "done"),
            ("family", parent, [2, 4]),
            ("family:0", double, 2),
            ("family:1", double, 4),
        ):
            entries = await env.client.handle(run_id).journal()
            text = dumps(entries)
            for form in (entries, text, text.decode()):
                report = replay(workflow, form)
                assert (report.outcome, report.result, report.same_code) == ("completed", result, True)
            assert verify(text) == []


async def test_a_violation_in_an_early_segment_is_found() -> None:
    """Every segment is replayed, not only the last."""
    async with Environment(app) as env:
        handle = await env.client.start(rolls, 2)
        await handle.result()
        entries = await handle.journal()

    @unchecked(name="rolls")
    async def changed(ctx: Context, left: int) -> str:
        if left == 2:
            await ctx.sleep(1)
        else:
            await ctx.invoke(work, left)
        if left:
            ctx.continue_as_new(left - 1)
        return "done"

    report = replay(changed, entries)
    assert report.outcome == "violation"
    assert report.same_code is False


def test_a_childs_new_command_continues_its_path() -> None:
    """A child's own path is read off its journal."""
    report = replay(double, flat(begun(1), step("1.0", "work", 1, 1)))

    assert report.to_json() == {"outcome": "blocked", "waiting_on": ["1.1"]}


def test_another_workflows_journal_is_refused() -> None:
    """It is not a violation but a mistake of the caller."""
    recorded = flat(ev.ExecutionStarted(workflow="other", input=[1]))

    with pytest.raises(InvalidRequest, match="of workflow 'other', not 'double'"):
        replay(double, recorded)


def test_an_empty_journal_is_refused() -> None:
    """There is nothing to replay."""
    nothings: list[list[ev.Entry] | bytes | str] = [[], b"[]", "[]"]
    for nothing in nothings:
        with pytest.raises(InvalidRequest, match="empty"):
            replay(double, nothing)


def test_a_journal_without_its_beginning_is_refused() -> None:
    """The first event is ExecutionStarted."""
    with pytest.raises(InvalidRequest, match="begins with ExecutionStarted"):
        replay(double, flat(child("0", "x"), done("0")))


def test_what_is_not_a_workflow_is_refused() -> None:
    """Only a registered workflow can be replayed."""
    with pytest.raises(InvalidRequest, match="work is not a workflow"):
        replay(work, flat(begun()))


def test_a_journal_from_elsewhere_needs_only_what_rules_need() -> None:
    """Without ``applied`` and ``now`` a resume shows all that is journaled and not yet shown."""
    recorded = flat(
        ev.ExecutionStarted(input=[1]),
        task("0", "work", 1), awaiting("0"), done("0", 1), ev.ExecutionResumed(),
        task("1", "work", 1), awaiting("1"), done("1", 2), ev.ExecutionResumed(),
        ev.ExecutionCompleted(result=ev.Result(ok=3)),
    )  # fmt: skip

    assert replay(double, recorded).outcome == "completed"
