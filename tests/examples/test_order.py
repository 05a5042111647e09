"""The order: a saga that is finished or undone, whatever breaks on the way."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from examples import order
from examples.order import Approval, Order, Outcome, app, fulfil
from tests.examples.embedded import RESULT_WITHIN, embedded, steps_of, until_it_waits
from tidewheel import RunCancelled
from tidewheel.testing import Environment, crash_everywhere

KETTLES = Order(id="1001", item="kettle", quantity=2, cents=7800)
TO_NOWHERE = Order(id="1002", item="kettle", quantity=2, cents=7800, to="nowhere")
YES = Approval(approved=True, by="desk 3")
UNDONE = ["reserve", "charge", "refund", "release"]


@pytest.fixture(autouse=True)
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The outside world of the test."""
    path = tmp_path / "ledger.txt"
    path.touch()
    monkeypatch.setattr(order, "LEDGER", path)
    return path


def lines(ledger: Path) -> list[str]:
    """What was done in the world, in order, each with its key."""
    return ledger.read_text("utf-8").splitlines()


def done(ledger: Path) -> list[str]:
    """What was done in the world, in order."""
    return [line.split()[0] for line in lines(ledger)]


def empty(ledger: Path) -> None:
    """Begin with a world in which nothing was done."""
    ledger.write_text("", "utf-8")


async def test_an_approved_order_is_shipped_and_everybody_is_told(ledger: Path) -> None:
    """Each thing is done once, in order, and three notifications go out."""
    async with Environment(app) as env:
        run = await env.client.start(fulfil, KETTLES)
        env.after(3600, run.signal, "approval", YES)

        outcome = await run.result()

    assert (outcome.status, outcome.tracking, len(outcome.told)) == ("shipped", "track-1001", 3)
    assert done(ledger) == ["reserve", "charge", "ship"]


async def test_an_order_that_no_carrier_takes_is_undone_in_reverse(ledger: Path) -> None:
    """The money goes back first, then the items, and the reason is kept."""
    async with Environment(app) as env:
        run = await env.client.start(fulfil, TO_NOWHERE)
        await run.signal("approval", YES)

        outcome = await run.result()

    assert outcome == Outcome("cancelled", why="Undeliverable: nowhere")
    assert done(ledger) == UNDONE


async def test_a_carrier_that_never_answers_is_tried_three_times(ledger: Path) -> None:
    """Only when the attempts are spent is the order undone."""
    calls: Counter[str] = Counter()

    def ship(wanted: Order) -> str:
        calls[wanted.id] += 1
        raise ConnectionError("no answer")

    async with Environment(app) as env:
        env.fake(order.ship, ship)
        run = await env.client.start(fulfil, KETTLES)
        await run.signal("approval", YES)

        outcome = await run.result()

    assert outcome.why == "StepFailed: ship: ConnectionError: no answer"
    assert calls["1001"] == 3
    assert done(ledger) == UNDONE


async def test_a_charge_whose_answer_was_lost_is_refunded(ledger: Path) -> None:
    """A step that failed may have happened: what undoes it is asked for all the same."""
    async with Environment(app) as env:
        env.fake(order.charge, raises=TimeoutError("no answer"))
        run = await env.client.start(fulfil, KETTLES)

        outcome = await run.result()

    assert outcome.status == "cancelled"
    assert done(ledger) == ["reserve", "refund", "release"]


async def test_an_order_that_is_out_of_stock_charges_nobody(ledger: Path) -> None:
    """A lack of stock reaches the workflow as itself, and is not tried again."""
    async with Environment(app) as env:
        run = await env.client.start(fulfil, Order("1003", "kettle", 101, 1))

        outcome = await run.result()

    assert outcome == Outcome("cancelled", why="OutOfStock: kettle")
    assert done(ledger) == ["release"]


async def test_an_order_that_nobody_approves_is_undone_after_three_days(ledger: Path) -> None:
    """No answer is a no."""
    async with Environment(app) as env:
        began = env.now
        run = await env.client.start(fulfil, KETTLES)

        outcome = await run.result()

        assert timedelta(days=3) <= env.now - began < timedelta(days=3, minutes=1)
    assert outcome == Outcome("cancelled", why="Refused: nobody answered")
    assert done(ledger) == UNDONE


async def test_a_mistyped_approval_is_passed_over() -> None:
    """What is no approval at all neither approves nor refuses; the next one counts."""
    async with Environment(app) as env:
        run = await env.client.start(fulfil, KETTLES)
        await run.signal("approval", "yes!")
        await run.signal("approval", Approval(approved=False, by="desk 4"))

        outcome = await run.result()

    assert outcome.why == "Refused: by desk 4"


async def test_a_notification_that_fails_undoes_nothing(ledger: Path) -> None:
    """The parcel is on its way, whether or not the customer can be told."""
    async with Environment(app) as env:
        env.fake(order.message_customer, raises=ConnectionError("no mail today"))
        run = await env.client.start(fulfil, KETTLES)
        await run.signal("approval", YES)

        outcome = await run.result()

    assert outcome.status == "shipped"
    assert [text for text in outcome.told if text.startswith("not told")] == [
        "not told: message_customer: ConnectionError: no mail today"
    ]
    assert done(ledger) == ["reserve", "charge", "ship"]


async def test_an_order_that_is_cancelled_from_outside_is_undone(ledger: Path) -> None:
    """A cancel reaches the code where it waits, and the code cleans up before it ends."""
    async with Environment(app) as env:
        run = await env.client.start(fulfil, KETTLES)
        await env.sleep(60)
        await run.cancel("changed their mind")

        with pytest.raises(RunCancelled, match="changed their mind"):
            await run.result()

    assert done(ledger) == UNDONE


async def test_a_cancel_does_not_interrupt_the_undoing(ledger: Path) -> None:
    """Half an undoing is worse than none: a cancel waits until all of it is done."""
    async with Environment(app) as env:
        env.fake(order.refund, takes=600)
        run = await env.client.start(fulfil, TO_NOWHERE)
        await run.signal("approval", YES)
        env.after(60, run.cancel)

        with pytest.raises(RunCancelled):
            await run.result()

    assert done(ledger) == UNDONE


@pytest.mark.parametrize("wanted", [KETTLES, TO_NOWHERE], ids=["shipped", "undone"])
async def test_a_crash_at_any_point_changes_nothing(wanted: Order, ledger: Path) -> None:
    """The outcome is the same, and whatever is done twice is done with the same key."""

    async def scenario(env: Environment) -> tuple[Outcome, list[str]]:
        empty(ledger)
        run = await env.client.start(fulfil, wanted, run_id="order")
        env.after(60, run.signal, "approval", YES)
        outcome = await run.result()
        return outcome, sorted(set(lines(ledger)))

    assert await crash_everywhere(app, scenario) > 20


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [(KETTLES, ["reserve", "charge", "ship"]), (TO_NOWHERE, UNDONE)],
    ids=["shipped", "undone"],
)
async def test_an_order_survives_a_restart_of_everything(
    wanted: Order, expected: list[str], ledger: Path, tmp_path: Path
) -> None:
    """On the embedded default: charged before the restart, approved after it, nothing done twice."""
    async with embedded(app, tmp_path) as client:
        run = await client.start(fulfil, wanted, run_id="order")
        await until_it_waits(run, "approval")

    async with embedded(app, tmp_path) as client:
        again = client.handle("order")
        await again.signal("approval", YES)
        outcome = await again.result(timeout=RESULT_WITHIN)
        steps = steps_of(await again.journal())

    assert outcome["status"] == ("shipped" if wanted is KETTLES else "cancelled")
    assert done(ledger) == expected
    assert steps[:3] == ["reserve", "charge", "ship"]
