"""Code that changed under its journal: extended, shortened, reordered, with other inputs."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging

import pytest

from tests.unit.replay.journals import (
    Driver,
    awaiting,
    begun,
    done,
    fired,
    given_to_steps,
    journal,
    names,
    resumed,
    step,
    task,
    timer,
    unchecked,
    violation_of,
)
from tidewheel import App, Context, DeterminismViolation
from tidewheel.journal import events as ev
from tidewheel.replay.violation import DETERMINISM_VIOLATION
from tidewheel.testing import Environment

app = App("changed")


@app.task
async def process(item: str) -> str:
    """A task."""
    return f"processed {item}"


@app.task
async def notify(item: str) -> str:
    """Another task."""
    return f"notified {item}"


THREE = [begun(), *(event for n in range(3) for event in step(str(n), "process", f"r{n}", f"item-{n}"))]


def looping(times: int, **options: bool) -> Driver:
    """A loop of so many steps, over a journal of three that has shown them all."""

    @unchecked(**options)
    async def order(ctx: Context) -> list[str]:
        return [await ctx.invoke(process, f"item-{n}") for n in range(times)]

    return Driver(order, recorded=journal(THREE))


# Loops: seed 004's examples


def test_an_unchanged_loop_matches_step_by_step() -> None:
    """Task(0) to Task(2) match the three recorded ones and nothing new is asked."""
    driver = looping(3)

    assert names(driver.activate()) == ["ExecutionCompleted"]
    assert driver.result == ["r0", "r1", "r2"]
    driver.end()


def test_an_extended_loop_is_allowed() -> None:
    """Task(3) has no event, so it is a new command at the next free position."""
    driver = looping(4)

    assert names(driver.activate()) == ["InvokeScheduled", "ExecutionAwaiting"]
    assert driver.waits_on == ["3"]
    driver.activate(done("3", "r3"))
    assert driver.result == ["r0", "r1", "r2", "r3"]
    driver.end()


def test_a_shortened_loop_leaves_orphans_which_are_a_violation() -> None:
    """Fewer commands than the journal has: at completion the unmatched ones are named."""
    driver = looping(2)

    driver.activate()

    assert driver.error.type == DETERMINISM_VIOLATION
    assert driver.error.message == "Task(2): journal has 'process', code never asked for it"
    driver.end()


def test_orphans_may_be_allowed() -> None:
    """``allow_orphans=True`` lets the shortened code complete."""
    driver = looping(2, allow_orphans=True)

    driver.activate()

    assert driver.result == ["r0", "r1"]
    driver.end()


@pytest.mark.parametrize("first", ["0", "1", "2"])
def test_parallel_commands_match_by_creation_whatever_completes_first(first: str) -> None:
    """Seed 004's parallel example: two tasks and a timer, completed in any order."""

    @unchecked()
    async def order(ctx: Context) -> list[str | None]:
        one, two, three = ctx.start(process, "a"), ctx.start(notify, "b"), ctx.sleep(5)
        return list(await asyncio.gather(one, two, three))

    facts: dict[str, list[ev.Event]] = {"0": done("0", "A"), "1": done("1", "B"), "2": [fired("2")]}
    others = [path for path in facts if path != first]
    shown = [first, *others]
    driver = Driver(
        order,
        recorded=journal(
            begun(), task("0", "process", "a"), task("1", "notify", "b"), timer("2", 5),
            awaiting("0", "1", "2"), *(facts[path] for path in shown), resumed(*shown),
        ),
    )  # fmt: skip

    driver.activate()

    assert driver.result == ["A", "B", None]
    driver.end()


# Extension in the middle


def test_a_timer_inserted_in_the_middle_waits_for_what_the_journal_waits_for() -> None:
    """New work goes after all recorded positions, and facts of later commands keep for them."""

    @unchecked()
    async def order(ctx: Context) -> list[str]:
        first = await ctx.invoke(process, "a")
        await ctx.sleep(5)
        return [first, await ctx.invoke(notify, "b")]

    driver = Driver(
        order,
        recorded=journal(begun(), step("0", "process", "A", "a"), task("1", "notify", "b"), awaiting("1")),
    )

    assert driver.activate() == []
    assert driver.activate(done("1", "B")) == [resumed("1"), timer("2", 5), awaiting("2")]
    driver.activate(fired("2"), after=5)
    assert driver.result == ["A", "B"]
    driver.end()


def test_an_inserted_timer_replays_again_and_again() -> None:
    """The journal of extended code is replayed by that code like any other, cut anywhere."""

    @unchecked()
    async def order(ctx: Context) -> list[str]:
        first = await ctx.invoke(process, "a")
        await ctx.sleep(5)
        return [first, await ctx.invoke(notify, "b")]

    recorded = journal(
        begun(), step("0", "process", "A", "a"), task("1", "notify", "b"), awaiting("1"), done("1", "B")
    )
    driver = Driver(order, recorded=recorded, cold=True)
    driver.activate()
    driver.activate(fired("2"), after=5)

    assert driver.result == ["A", "B"]
    driver.end()


# Inputs


def test_a_changed_input_gives_the_cached_result_and_is_counted_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A hit with another input returns what the journal has; that is seen in a counter and in the log."""

    @unchecked()
    async def order(ctx: Context) -> str:
        return await ctx.invoke(process, "new")

    driver = Driver(order, recorded=journal(begun(), step("0", "process", "R", "old")))
    with caplog.at_level(logging.WARNING):
        driver.activate()

    assert driver.result == "R"
    assert driver.execution.matcher.inputs_changed == 1
    assert [record.getMessage() for record in caplog.records] == [
        "Task(0): the journal has another input than the code; using the journal's"
    ]
    driver.end()


def test_strict_inputs_make_a_changed_input_a_violation() -> None:
    """``strict_inputs=True`` refuses instead."""

    @unchecked(strict_inputs=True)
    async def order(ctx: Context) -> str:
        return await ctx.invoke(process, "new")

    violation = violation_of(order, begun(), step("0", "process", "R", "old"))

    assert violation.message == 'Task(0) input: journal has ["old"], code asked for ["new"]'


@pytest.mark.parametrize("event", [ev.StateSet(key="k", value=1), timer("0", 1)], ids=["state", "timer"])
def test_values_and_durations_are_inputs_too(event: ev.Event, caplog: pytest.LogCaptureFixture) -> None:
    """A state's value and a timer's duration may change; the change is counted."""

    @unchecked()
    async def order(ctx: Context) -> None:
        if isinstance(event, ev.StateSet):
            ctx.state["k"] = 2
        await ctx.sleep(9 if isinstance(event, ev.TimerScheduled) else 1)

    recorded = [event] if isinstance(event, ev.TimerScheduled) else [event, timer("0", 1)]
    driver = Driver(order, recorded=journal(begun(), recorded, awaiting("0"), fired("0"), resumed("0")))
    driver.activate()

    assert driver.execution.matcher.inputs_changed == 1
    assert isinstance(driver.last, ev.ExecutionCompleted)
    driver.end()


# Order


@pytest.mark.parametrize("order_now", list(itertools.permutations("abc"))[1:])
@pytest.mark.parametrize("recorded", [1, 2, 3])
def test_calls_in_another_order_are_a_violation_and_never_swap_results(
    order_now: tuple[str, ...], recorded: int
) -> None:
    """Iterating one's own set of strings in another order must not hand a result to the wrong item."""

    @unchecked()
    async def order(ctx: Context) -> dict[str, str]:
        started = {item: ctx.start(process, item) for item in order_now}
        return {item: await promise for item, promise in started.items()}

    paths = [str(n) for n in range(recorded)]
    driver = Driver(
        order,
        recorded=journal(
            begun(),
            *(task(path, "process", "abc"[int(path)]) for path in paths),
            awaiting(*paths),
            *(done(path, "abc"[int(path)].upper()) for path in paths),
            resumed(*paths),
        ),
    )
    asked = driver.activate()

    if order_now[:recorded] == tuple("abc"[:recorded]):
        assert given_to_steps(asked) == [[item] for item in order_now[recorded:]]
    else:
        assert driver.error.type == DETERMINISM_VIOLATION
        assert "the order of the calls has changed" in driver.error.message
    driver.end()


@pytest.mark.parametrize("shown", [0, 1, 2])
def test_sequential_calls_in_another_order_are_a_violation(shown: int) -> None:
    """Also where each call waits for the one before, and the journal is only partly there."""

    @unchecked()
    async def order(ctx: Context) -> list[str]:
        return [await ctx.invoke(process, item) for item in "bac"]

    steps = [event for n in range(shown) for event in step(str(n), "process", "abc"[n].upper(), "abc"[n])]
    driver = Driver(
        order,
        recorded=journal(begun(), steps, task(str(shown), "process", "abc"[shown]), awaiting(str(shown))),
    )
    driver.activate(done(str(shown), "abc"[shown].upper()))

    assert driver.error.type == DETERMINISM_VIOLATION
    driver.end()


# The run cannot go on


@pytest.mark.parametrize("caught", [Exception, BaseException])
def test_user_code_cannot_swallow_a_violation(caught: type[BaseException]) -> None:
    """The violation is kept on the run, so catching what the verb raised changes nothing."""

    @unchecked()
    async def order(ctx: Context) -> str:
        with contextlib.suppress(caught):
            await ctx.invoke(notify, "a")
        ctx.state["went"] = "on"
        return "fine"

    violation = violation_of(order, begun(), step("0", "process", "A", "a"))

    assert violation.message == "Task(0): journal has 'process', code asked for 'notify'"


def test_a_violation_in_a_branch_stops_all_of_them() -> None:
    """Nothing moves after a violation, wherever in the code it happened."""
    seen: list[str] = []

    @unchecked()
    async def order(ctx: Context) -> None:
        async def branch() -> None:
            try:
                await ctx.invoke(notify, "a")
            finally:
                seen.append("branch")

        other = asyncio.create_task(branch())
        await asyncio.wait([other])
        seen.append("main")

    violation_of(order, begun(), step("0", "process", "A", "a"))

    assert seen == ["branch"]


@pytest.fixture
def unstable() -> App:
    """An app whose workflow asks for something else each time it is replayed."""
    unstable = App("unstable", on_violation="park")
    replayed = itertools.count()

    @unstable.workflow
    async def order(ctx: Context) -> str:
        await ctx.invoke(process if next(replayed) == 0 else notify, "a")
        await ctx.sleep(60)
        return "done"

    unstable.include(app)
    return unstable


async def test_a_parked_violation_leaves_the_journal_untouched(unstable: App) -> None:
    """``on_violation="park"`` keeps the run for a fixed deploy: nothing is appended."""
    async with Environment(unstable) as env:
        handle = await env.client.start("order")
        await env.settle()
        before = await handle.journal()
        env.crash()

        with pytest.raises(DeterminismViolation, match=r"Task\(0\): journal has 'process'"):
            await handle.result()

        assert await handle.journal() == before
        assert await handle.status() == "RUNNING"
