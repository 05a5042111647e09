"""The approval: somebody decides, or is reminded, or is not waited for any longer."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from examples.approval import Decision, Request, app, approval
from tests.examples.embedded import RESULT_WITHIN, embedded, steps_of, until_it_waits
from tidewheel import AlreadyResolved
from tidewheel.testing import Environment, crash_everywhere

LAPTOP = Request(what="a laptop", asked_by="ops", decided_by="finance")
YES = Decision(approved=True, why="it is in the plan")


async def test_a_quick_answer_needs_no_reminder() -> None:
    """Two messages are sent: the question, and the answer to whoever asked."""
    async with Environment(app) as env:
        run = await env.client.start(approval, LAPTOP)
        env.after(timedelta(hours=1), run.resolve, "decision", YES)

        decision = await run.result()

        assert decision == YES
        assert len(steps_of(await run.journal())) == 2


async def test_reminders_go_out_every_eight_hours_until_somebody_answers() -> None:
    """An answer after 17 hours comes after two reminders."""
    async with Environment(app) as env:
        run = await env.client.start(approval, LAPTOP)
        env.after(timedelta(hours=17), run.resolve, "decision", YES)

        decision = await run.result()

        assert decision == YES
        assert await run.state() == {"reminders": 2}


async def test_no_answer_in_three_days_is_a_no() -> None:
    """The deadline goes on while reminders come and go."""
    async with Environment(app) as env:
        began = env.now
        run = await env.client.start(approval, LAPTOP)

        decision = await run.result()

        assert decision == Decision(approved=False, why="nobody answered; reminders: 8")
        assert env.now - began == timedelta(hours=72)


async def test_a_promise_that_is_rejected_is_a_no_with_its_reason() -> None:
    """Both ways to settle a promise from outside work."""
    async with Environment(app) as env:
        run = await env.client.start(approval, LAPTOP)
        env.after(60, run.reject, "decision", "not this year")

        decision = await run.result()

    assert decision == Decision(approved=False, why="not this year")


async def test_an_answer_that_cannot_be_read_is_a_no_that_says_so() -> None:
    """A promise is settled once, so a mistyped yes cannot be taken for one."""
    async with Environment(app) as env:
        run = await env.client.start(approval, LAPTOP)
        env.after(60, run.resolve, "decision", "yes!")

        decision = await run.result()

    assert not decision.approved
    assert "expected an object" in decision.why


async def test_an_approval_survives_a_crash_at_any_point() -> None:
    """Reminders and the deadline go on as if nothing had happened."""

    async def scenario(env: Environment) -> tuple[Decision, dict[str, int]]:
        run = await env.client.start(approval, LAPTOP)
        env.after(timedelta(hours=17), run.resolve, "decision", YES)
        return await run.result(), await run.state()

    assert await crash_everywhere(app, scenario) > 20


async def test_the_first_answer_counts_on_the_embedded_default(tmp_path: Path) -> None:
    """Whoever answers second is told that it was decided before, also while the worker is away."""
    async with embedded(app, tmp_path) as client:
        run = await client.start(approval, LAPTOP, run_id="laptop")
        await until_it_waits(run, "decision")

    async with embedded(app, tmp_path) as client:
        again = client.handle("laptop")
        await again.resolve("decision", YES)
        with pytest.raises(AlreadyResolved):
            await again.reject("decision", "too late")
        decision = await again.result(timeout=RESULT_WITHIN)

    assert decision == {"approved": True, "why": "it is in the plan"}


async def test_waiting_ends_by_itself_on_the_embedded_default(tmp_path: Path) -> None:
    """Real timers: reminded at least once, then given up."""
    hasty = Request("a laptop", asked_by="ops", decided_by="finance", remind_every=0.1, give_up_after=0.5)
    async with embedded(app, tmp_path) as client:
        run = await client.start(approval, hasty)

        decision = await run.result(timeout=RESULT_WITHIN)
        state = await run.state()

    assert not decision.approved
    assert state["reminders"] >= 1
