r"""An order as a saga: what was done is undone, in reverse, when a later step cannot be done.

Shows tasks with retries and idempotency keys, compensation, a person's decision as a signal,
notifications in parallel, and clean-up after a cancel. Try it, in two terminals::

    ORDERS_LEDGER=ledger.txt tidewheel dev examples/order.py:app

    tidewheel run start fulfil --run-id order-1 \
        --input '[{"id": "1", "item": "kettle", "quantity": 2, "cents": 7800}]'
    tidewheel run signal order-1 approval --payload '{"approved": true, "by": "desk 3"}'
    tidewheel run watch order-1

Send it to ``"to": "nowhere"`` and the carrier refuses: the ledger shows the money and the items going
back. Stop the first terminal at any moment and start it again: nothing is lost, nothing is paid twice.
``examples/story.py`` does that for you.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from tidewheel import App, Context, InvalidRequest, Retry, StepFailed, current_task

app = App("orders")

STOCK = 100
APPROVE_WITHIN = timedelta(days=3)
#: The outside world: a file with a line for each thing that was really done.
LEDGER = Path(os.environ.get("ORDERS_LEDGER", os.devnull))
#: How long the carrier takes to answer, in seconds.
CARRIER_TAKES = float(os.environ.get("ORDERS_CARRIER_TAKES", "0"))
#: Undoing is tried for weeks before anybody gives it up.
UNDO = Retry(max_attempts=1_000, max_delay=timedelta(hours=1))


@dataclass(frozen=True)
class Order:
    """What somebody wants to buy, and where it goes."""

    id: str
    item: str
    quantity: int
    cents: int
    to: str = "home"


@dataclass(frozen=True)
class Approval:
    """What a person decided."""

    approved: bool
    by: str


@dataclass(frozen=True)
class Outcome:
    """How an order ended: shipped with a tracking number, or not, and why."""

    status: str
    tracking: str | None = None
    why: str | None = None
    told: tuple[str, ...] = ()


class OutOfStock(Exception):
    """There are not enough items."""


class Undeliverable(Exception):
    """No carrier goes there."""


class Refused(Exception):
    """A person said no, or nobody said yes in time."""


# Tasks touch the world, here a file; yours call a service or a database. A task may be executed again
# when its worker dies before the result is kept. The key is the same each time: pass it on, so that
# whoever does the work can tell a repetition from a second order.


def write_ledger(what: str, order: Order) -> None:
    """Do something that cannot be taken back."""
    with LEDGER.open("a", encoding="utf-8") as ledger:
        ledger.write(f"{what} {order.id} {current_task().idempotency_key}\n")


@app.task(raises=[OutOfStock], retry=Retry(non_retryable=[OutOfStock]))
def reserve(order: Order) -> str:
    """Put items aside and return where they lie."""
    if order.quantity > STOCK:
        raise OutOfStock(order.item)
    write_ledger("reserve", order)
    return f"shelf 7, {order.item}"


@app.task(retry=UNDO)
def release(order: Order) -> None:
    """Put the items back that lie aside for an order, if any do."""
    write_ledger("release", order)


@app.task(retry=Retry(max_attempts=5), timeout=30)
def charge(order: Order) -> str:
    """Take the money and return the payment's number."""
    write_ledger("charge", order)
    return f"payment-{order.id}"


@app.task(retry=UNDO)
def refund(order: Order) -> None:
    """Give the money back that was taken for an order, if any was."""
    write_ledger("refund", order)


@app.task(raises=[Undeliverable], retry=Retry(non_retryable=[Undeliverable]))
async def ship(order: Order) -> str:
    """Hand the parcel to a carrier and return its tracking number."""
    if order.to == "nowhere":
        raise Undeliverable(order.to)
    write_ledger("ship", order)
    await asyncio.sleep(CARRIER_TAKES)
    return f"track-{order.id}"


@app.task
def message_customer(order: Order, tracking: str) -> str:
    """Tell the customer that the parcel is on its way."""
    return f"the customer of {order.id}: {tracking}"


@app.task
def print_pick_list(order: Order, shelf: str) -> str:
    """Tell the warehouse what to pick."""
    return f"the warehouse: {order.quantity} from {shelf}"


@app.task
def book_sale(order: Order, payment: str) -> str:
    """Tell the accounts."""
    return f"the accounts: {payment}, {order.cents} cents"


# The workflow says what happens in which order, whatever breaks in between. It acts through ctx alone.


@app.workflow
async def fulfil(ctx: Context, order: Order) -> Outcome:
    """Reserve, charge, ask a person, ship and tell everybody; or undo what was done."""
    # A step that failed may have happened all the same: its answer was lost. So what undoes a step is
    # noted before the step is asked for, and does nothing where there is nothing to undo.
    undo: list[Callable[[Order], None]] = []
    try:
        undo.append(release)
        shelf = await ctx.invoke(reserve, order)
        undo.append(refund)
        payment = await ctx.invoke(charge, order)
        await approved(ctx)
        tracking = await ctx.invoke(ship, order)
    except (OutOfStock, Undeliverable, Refused, StepFailed) as problem:
        await compensate(ctx, order, undo)
        return Outcome("cancelled", why=f"{type(problem).__name__}: {problem}")
    except (asyncio.CancelledError, Exception):  # cancelled from outside, or a mistake in this code
        await compensate(ctx, order, undo)
        raise

    told = await notify(ctx, order, shelf, payment, tracking)
    return Outcome("shipped", tracking=tracking, told=told)


async def compensate(ctx: Context, order: Order, undo: list[Callable[[Order], None]]) -> None:
    """Undo the newest step first; all of it, even if the run is cancelled meanwhile."""

    async def undo_all() -> None:
        for task in reversed(undo):
            await ctx.invoke(task, order)

    undoing = asyncio.create_task(undo_all())
    try:
        await asyncio.shield(undoing)
    except asyncio.CancelledError:  # comes once at most
        await undoing
        raise


async def approved(ctx: Context) -> None:
    """Wait until a person says yes; raise ``Refused`` where that does not happen."""
    while True:
        try:
            answer = await ctx.signal("approval", into=Approval, timeout=APPROVE_WITHIN)
        except InvalidRequest:
            continue  # not an Approval at all: whoever mistyped it may send another
        except TimeoutError:
            raise Refused("nobody answered") from None
        if not answer.approved:
            raise Refused(f"by {answer.by}")
        return


async def notify(ctx: Context, order: Order, shelf: str, payment: str, tracking: str) -> tuple[str, ...]:
    """Tell everybody at once; whoever cannot be told does not undo an order that was shipped."""
    told: list[str] = []
    async with ctx.join_set() as messages:
        messages.submit(message_customer, order, tracking)
        messages.submit(print_pick_list, order, shelf)
        messages.submit(book_sale, order, payment)
        while len(messages):
            try:
                told.append(await messages.next())  # in the order in which they come
            except StepFailed as problem:
                told.append(f"not told: {problem}")
    return tuple(sorted(told))
