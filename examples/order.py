"""An order, from the card to the doorstep, through a crash.

The first half is what you would write: the types, the tasks that touch the world, and the
workflows that decide what comes next. The second half runs an order in memory on a virtual
clock, shows its journal as it grows, kills the process in the middle, and checks that nobody
could tell. ``make run`` runs it; it needs no server.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from tidewheel import App, Context, Retry, StepFailed, current_task
from tidewheel.journal import events as ev
from tidewheel.journal.jsonform import dumps
from tidewheel.testing import Environment, crash_everywhere, replay, verify

app = App("orders")

STOCK = 100
REMINDERS_MAX = 3


@dataclass(frozen=True)
class Order:
    """What somebody wants to buy."""

    id: str
    item: str
    quantity: int
    cents: int


@dataclass(frozen=True)
class Receipt:
    """The payment provider's word that it took the money."""

    payment: str
    cents: int


@dataclass(frozen=True)
class Approval:
    """What a person at a desk decided."""

    approved: bool
    desk: str


@dataclass(frozen=True)
class Outcome:
    """How an order ended."""

    status: str
    tracking: str | None = None


class OutOfStock(Exception):
    """There is not enough of an item; trying again does not make more."""

    retryable = False


# Tasks: plain functions, sync or async. These only pretend; yours call a service or a database.


@app.task(retry=Retry(max_attempts=4, initial=2.0, jitter=0.0), timeout=30)
async def charge(order: Order) -> Receipt:
    """Take the money; the provider knows a repeated request by its idempotency key."""
    task = current_task()
    if task.attempt == 1:
        message = "no answer from the provider"
        raise ConnectionError(message)
    return Receipt(payment=f"payment-of-{task.idempotency_key}", cents=order.cents)


@app.task
def refund(receipt: Receipt) -> str:
    """Give the money back."""
    return f"refund-of-{receipt.payment}"


@app.task(raises=[OutOfStock])
def reserve(item: str, quantity: int) -> str:
    """Put items aside and return where they lie."""
    if quantity > STOCK:
        raise OutOfStock(item)
    return f"shelf-7/{item}"


@app.task
def release(shelf: str) -> str:
    """Put items back."""
    return f"released {shelf}"


@app.task
def message_customer(order: Order) -> str:
    """Tell the customer that the order was taken."""
    return f"customer of {order.id}"


@app.task
def print_pick_list(order: Order, shelf: str) -> str:
    """Tell the warehouse what to pick."""
    return f"pick {order.quantity} at {shelf}"


@app.task
def remind_desk(order: Order) -> str:
    """Tell the desk that an order waits for it."""
    return f"reminder for {order.id}"


@app.task
def book_carrier(order: Order) -> str:
    """Book the transport and return its tracking number."""
    return f"track-{order.id}"


@app.task
def ask_for_review(order: Order) -> str:
    """Ask the customer how it was."""
    return f"review of {order.item}"


# Workflows: what happens in which order, whatever breaks in between. They act through ctx alone.


@app.workflow
async def fulfil(ctx: Context, order: Order) -> Outcome:
    """Charge, reserve, notify, wait for a person, ship, and days later ask for a review."""
    receipt = await ctx.invoke(charge, order)
    try:
        shelf = await ctx.invoke(reserve, order.item, order.quantity)
    except OutOfStock:
        await ctx.invoke(refund, receipt)
        return Outcome("out of stock")

    async with ctx.join_set() as notifications:
        notifications.submit(message_customer, order)
        notifications.submit(print_pick_list, order, shelf)
        ctx.state["notified"] = [who async for who in notifications]  # in the order they finish

    if not await approved(ctx, order):
        await ctx.invoke(release, shelf)
        await ctx.invoke(refund, receipt)
        return Outcome("refused")

    try:
        tracking = await ctx.invoke(ship, order)  # a child run, with a journal of its own
    except StepFailed:
        await ctx.invoke(refund, receipt)
        return Outcome("not shipped")

    await ctx.sleep(timedelta(days=10))
    await ctx.invoke(ask_for_review, order)
    return Outcome("delivered", tracking)


async def approved(ctx: Context, order: Order) -> bool:
    """Wait for a person to decide, and remind the desk every day; no answer is a no."""
    for _ in range(REMINDERS_MAX):
        try:
            answer = await ctx.signal("approval", into=Approval, timeout=timedelta(days=1))
        except TimeoutError:
            await ctx.invoke(remind_desk, order)
        else:
            return answer.approved
    return False


@app.workflow
async def ship(ctx: Context, order: Order) -> str:
    """Hand the order to a carrier and wait until it has arrived."""
    tracking = await ctx.invoke(book_carrier, order)
    await ctx.sleep(timedelta(days=2))
    return tracking


# The story. From here on it is about showing and checking, not about orders.

ORDER = Order(id="1001", item="kettle", quantity=2, cents=7800)
RUN = "order-1001"
CHILD = "order-1001:10"  # a child's id is its place in its parent
TAKES = {"charge": 1.0, "print_pick_list": 1.0, "message_customer": 3.0}  # virtual seconds
LINE_DELAY_S = 0.04  # on a terminal only: a journal that grows is easier to follow

#: What is told before the first event of this type about this subject.
STEPS = {
    ("ExecutionStarted", "fulfil"): "An order arrives. The journal begins with its input.",
    ("InvokeScheduled", "charge"): "The card is charged. The first attempt fails and is tried again.",
    ("InvokeScheduled", "reserve"): "Stock is reserved, once the payment is in the journal.",
    ("JoinSetCreated", ""): "Two notifications at once: started as 3 and 4, 4 ends first.",
    ("TimerScheduled", "1 day"): "A person must approve; the wait has a timeout of a day. The\n"
    "    virtual clock skips the day, nobody has answered, the desk is reminded.",
    ("SignalDelivered", "approval"): "The approval comes: a signal, consumed by the waiting code.",
    ("InvokeScheduled", "ship"): "Shipping is a workflow of its own: a child run ('>').",
    ("TimerScheduled", "10 days"): "Ten days of sleep pass at once, then a review is asked for.",
}


@dataclass(frozen=True)
class Told:
    """All that is left of an order that was fulfilled: what the checks compare."""

    outcome: Outcome
    journals: dict[str, bytes]
    calls: Counter[str]


class Terminal:
    """Prints the story: colours and a little patience on a terminal, plain text elsewhere."""

    def __init__(self) -> None:
        self._steps = 0
        self._is_terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self._colours = self._is_terminal and not os.environ.get("NO_COLOR")
        self._told: set[tuple[str, str]] = set()

    def step(self, text: str) -> None:
        """Announce the next step."""
        self._steps += 1
        print("\n" + self._in("1;36", f"{self._steps:2}. {text}"))

    def say(self, text: str, style: str = "0") -> None:
        """Say something about the step."""
        print(self._in(style, f"    {text}"))

    def entry(self, run: str, entry: ev.Entry) -> None:
        """Show an entry of a journal as it is written, and say so where a new step begins."""
        kind, subject, details = type(entry.event).__name__, *described(entry.event)
        if (kind, subject) in STEPS and (kind, subject) not in self._told:
            self._told.add((kind, subject))
            self.step(STEPS[kind, subject])
        assert entry.at is not None
        mark = ">" if run == CHILD else " "
        line = f"  {mark}{entry.run_seq:3}  {entry.at:%d %b %H:%M:%S}  {kind:18}  {subject} {details}"
        quiet = kind in ("ExecutionAwaiting", "ExecutionResumed", "InvokeStarted", "JoinSetSubmitted")
        print(self._in("2" if quiet else "0", line.rstrip()[:80]), flush=True)
        if self._is_terminal:
            time.sleep(LINE_DELAY_S)

    def _in(self, style: str, text: str) -> str:
        return f"\033[{style}m{text}\033[0m" if self._colours and style != "0" else text


def described(event: ev.Event) -> tuple[str, str]:
    """Return what *event* is about and what it says, short enough for a line."""
    subject, details = getattr(event, "promise_id", ""), ""
    match event:
        case ev.ExecutionStarted():
            subject, details = event.workflow, f"({event.input[0]['quantity']} x {event.input[0]['item']})"
        case ev.InvokeScheduled():
            subject, details = event.function_name, f"as {event.promise_id}"
        case ev.InvokeStarted():
            details = f"attempt {event.attempt}"
        case ev.InvokeRetrying():
            details = event.error.message
        case ev.InvokeCompleted(result=ev.Result(ok=ok)) | ev.JoinSetAwaited(result=ev.Result(ok=ok)):
            details = f"-> {ok['payment'] if isinstance(ok, dict) else ok}"
        case ev.JoinSetSubmitted():
            details = f"to set {event.join_set_id}"
        case ev.TimerScheduled():
            days = timedelta(seconds=event.duration).days
            subject, details = f"{days} day{'s' if days > 1 else ''}", f"as {event.promise_id}"
        case ev.SignalDelivered() | ev.SignalReceived():
            subject, details = event.signal_name, f"from {event.payload['desk']}"
        case ev.ExecutionAwaiting(waiting_on=paths) | ev.ExecutionResumed(applied=list() as paths):
            subject = ", ".join(paths)
        case ev.StateSet():
            subject, details = event.key, f"= {len(event.value)} values"
        case ev.ExecutionCompleted(result=ev.Result(ok=ok)):
            subject = ok["status"] if isinstance(ok, dict) else str(ok)
        case _:
            pass
    return subject, details


async def fulfilled(env: Environment, calls: Counter[str], terminal: Terminal | None = None) -> Outcome:
    """Take an order through its life; with a *terminal*, show it and crash in the middle."""
    for task in app.tasks.values():
        env.fake(task.fn, counted(task.fn, calls), takes=TAKES.get(task.name, 0.0))
    if terminal is not None:
        env.on_event(terminal.entry)

    order = await env.client.start(fulfil, ORDER, run_id=RUN)
    await env.sleep(timedelta(days=1, hours=2))
    if terminal is not None:
        await crash(env, calls, terminal)
    await order.signal("approval", Approval(approved=True, desk="desk-3"))
    outcome = await order.result()
    assert isinstance(outcome, Outcome)
    return outcome


def counted(fn: Callable[..., Any], calls: Counter[str]) -> Callable[..., Any]:
    """Return *fn*, counting how often its body is executed."""

    def call(*args: Any) -> Any:
        calls[fn.__name__] += 1
        return fn(*args)

    return call


async def crash(env: Environment, calls: Counter[str], terminal: Terminal) -> None:
    """Lose everything but the journals, and see what replay needs to be where it was."""
    journal = await env.client.handle(RUN).journal()
    before = calls.copy()
    terminal.step("CRASH. The process is killed while the order waits.")
    terminal.say("Gone: the coroutine, its variables, its timers. Left: the journal.", "1;31")

    env.crash()
    await env.settle()

    assert calls == before, "a task was executed again"
    assert await env.client.handle(RUN).journal() == journal, "replay wrote to the journal"
    terminal.say("fulfil() was run again from the top; each call it made got its recorded")
    terminal.say(f"result from the {len(journal)} events. Tasks executed again: 0. New events: 0.", "32")


async def told(terminal: Terminal | None = None) -> Told:
    """Fulfil the order in an environment of its own and keep what can be compared."""
    calls: Counter[str] = Counter()
    async with Environment(app) as env:
        outcome = await fulfilled(env, calls, terminal)
        journals = {run: dumps(await env.client.handle(run).journal()) for run in (RUN, CHILD)}
    return Told(outcome, journals, calls)


async def check(crashed: Told, terminal: Terminal) -> None:
    """Hold the crashed order against one that nothing happened to, and against the rules."""
    undisturbed = await told()
    terminal.step("The same order without a crash, for comparison.")
    terminal.say(f"{'task':18}{'executed':>10}{'without crash':>16}")
    for task, count in crashed.calls.items():
        terminal.say(f"{task:18}{count:10}{undisturbed.calls[task]:16}")
    terminal.say("(charge: an attempt that failed and one that did not)")
    assert crashed == undisturbed
    terminal.say(f"outcome:  the same, {crashed.outcome.status}, {crashed.outcome.tracking}", "32")
    terminal.say(
        f"journals: the same, {len(crashed.journals[RUN])} and {len(crashed.journals[CHILD])} bytes", "32"
    )

    terminal.step("Again, with a crash at each point in turn.")
    crashes = await crash_everywhere(app, lambda env: fulfilled(env, Counter()))
    terminal.say(f"{crashes} crashes, {crashes} times the same outcome", "32")

    terminal.step("The journals against the rules, and the code against the journals.")
    for run, workflow in ((RUN, fulfil), (CHILD, ship)):
        breaches, report = verify(crashed.journals[run]), replay(workflow, crashed.journals[run])
        assert breaches == []
        assert report.outcome == "completed"
        terminal.say(f"{run:14} verify: {len(breaches)} breaches; replay: {report.outcome}", "32")


def keep(journals: dict[str, bytes], terminal: Terminal) -> None:
    """Write the journals to files and say what can be done with them."""
    folder = Path(tempfile.mkdtemp(prefix="tidewheel-"))
    parent, child = folder / "order.json", folder / "shipping.json"
    parent.write_bytes(journals[RUN])
    child.write_bytes(journals[CHILD])
    beside = Path(sys.executable).with_name("tidewheel")
    on_path = shutil.which("tidewheel") is not None or not beside.exists()
    command = "tidewheel" if on_path else os.path.relpath(beside)

    terminal.step("The journals are kept. Try:")
    print(f"\n{command} journal verify --file {parent}")
    print(f"{command} graph --file {parent}")
    print(f"{command} replay {os.path.relpath(__file__)}:app --file {parent}")


async def main() -> None:
    """Tell the story."""
    terminal = Terminal()
    print("An order is fulfilled on a virtual clock. Each line is an event of its journal:")
    print("its number, the virtual time, what happened. The n-th thing asked for is n.")
    crashed = await told(terminal)
    assert crashed.outcome == Outcome("delivered", "track-1001")
    await check(crashed, terminal)
    keep(crashed.journals, terminal)


if __name__ == "__main__":
    asyncio.run(main())
