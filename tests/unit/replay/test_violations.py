"""Where code and journal disagree: one test for each cell of the determinism validation matrix."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.replay.journals import (
    awaiting,
    begun,
    child,
    done,
    operation,
    resumed,
    step,
    task,
    timer,
    unchecked,
    violation_of,
)
from tidewheel import App, Context
from tidewheel.journal import events as ev

app = App("violations")


@app.task
async def charge_card(amount: int = 0) -> str:
    """A task."""
    return f"charged {amount}"


@app.task
async def send_receipt(amount: int = 0) -> str:
    """Another task."""
    return f"sent {amount}"


@app.workflow
async def ship(ctx: Context) -> str:
    """A child run."""
    return "shipped"


@app.workflow
async def refund(ctx: Context) -> str:
    """Another child run."""
    return "refunded"


def quote() -> int:
    """An operation."""
    return 1


def rate() -> int:
    """Another operation."""
    return 2


# The matrix: command by command, field by field


def test_schedule_task_validates_the_task_type() -> None:
    """ScheduleTask / TaskScheduled: taskType. The message names command, journal and code."""

    @unchecked()
    async def order(ctx: Context) -> None:
        for _ in range(3):
            await ctx.invoke(charge_card)
        await ctx.invoke(send_receipt)

    violation = violation_of(
        order,
        begun(),
        *(step(str(n), "charge_card", "ok") for n in range(3)),
        task("3", "charge_card"),
        awaiting("3"),
    )

    assert violation.message == "Task(3): journal has 'charge_card', code asked for 'send_receipt'"
    assert violation.to_json() == {
        "command": "Task(3)",
        "field": "function_name",
        "journal": "charge_card",
        "code": "send_receipt",
    }


def test_schedule_child_workflow_validates_the_name() -> None:
    """ScheduleChildWorkflow / ChildWorkflowInitiated: childExecutionName."""

    @unchecked()
    async def order(ctx: Context) -> None:
        await ctx.invoke(refund)

    violation = violation_of(order, begun(), child("0", "ship"), awaiting("0"))

    assert violation.message == "ChildWorkflow(0): journal has 'ship', code asked for 'refund'"


def test_schedule_child_workflow_validates_the_kind_of_a_task_turned_workflow() -> None:
    """ScheduleChildWorkflow / ChildWorkflowInitiated: childWorkflowKind, from task to workflow."""
    other = App("other")

    @other.workflow(name="charge_card")
    async def charge_card_workflow(ctx: Context) -> None: ...

    @unchecked()
    async def order(ctx: Context) -> None:
        await ctx.invoke(charge_card_workflow)

    violation = violation_of(order, begun(), task("0", "charge_card"), awaiting("0"))

    assert violation.message == "Task(0) kind: journal has 'function', code asked for 'workflow'"


def test_schedule_child_workflow_validates_the_kind_of_a_workflow_turned_task() -> None:
    """ScheduleChildWorkflow / ChildWorkflowInitiated: childWorkflowKind, from workflow to task."""
    other = App("other")

    @other.task(name="ship")
    async def ship_task() -> None: ...

    @unchecked()
    async def order(ctx: Context) -> None:
        await ctx.invoke(ship_task)

    violation = violation_of(order, begun(), child("0", "ship"), awaiting("0"))

    assert violation.message == "ChildWorkflow(0) kind: journal has 'workflow', code asked for 'function'"


def test_record_operation_validates_the_operation_name() -> None:
    """RecordOperation / OperationCompleted: operationName."""

    @unchecked()
    async def order(ctx: Context) -> None:
        await ctx.run("price", rate)

    violation = violation_of(order, begun(), operation("0", "quote", "price"), awaiting("0"))

    assert violation.message == "Operation('price'): journal has 'quote', code asked for 'rate'"


def test_set_state_validates_the_key() -> None:
    """SetState / StateSet: key."""

    @unchecked()
    async def order(ctx: Context) -> None:
        ctx.state["paid"] = True
        await ctx.sleep(1)

    violation = violation_of(
        order, begun(), ev.StateSet(key="sent", value=True), timer("0", 1), awaiting("0")
    )

    assert violation.message == "State(0) key: journal has 'sent', code asked for 'paid'"


def test_clear_state_validates_the_key() -> None:
    """ClearState / StateCleared: key."""

    @unchecked()
    async def order(ctx: Context) -> None:
        ctx.state["a"] = ctx.state["b"] = 1
        del ctx.state["b"]
        await ctx.sleep(1)

    violation = violation_of(
        order,
        begun(),
        ev.StateSet(key="a", value=1),
        ev.StateSet(key="b", value=1),
        ev.StateCleared(key="a"),
        timer("0", 1),
        awaiting("0"),
    )

    assert violation.message == "State(2) key: journal has 'a', code asked for 'b'"


@pytest.mark.parametrize("sets", [True, False])
def test_setting_and_clearing_state_are_different_commands(sets: bool) -> None:
    """SetState matches StateSet only, ClearState matches StateCleared only, although they count together."""

    @unchecked()
    async def order(ctx: Context) -> None:
        ctx.state["a"] = 1
        if sets:
            ctx.state["a"] = 2
        else:
            del ctx.state["a"]
        await ctx.sleep(1)

    second = ev.StateCleared(key="a") if sets else ev.StateSet(key="a", value=2)
    violation = violation_of(
        order, begun(), ev.StateSet(key="a", value=1), second, timer("0", 1), awaiting("0")
    )

    had, asked = ("StateCleared", "StateSet") if sets else ("StateSet", "StateCleared")
    assert violation.message == f"State(1) type: journal has '{had}', code asked for '{asked}'"


def test_start_timer_validates_what_strict_inputs_cover() -> None:
    """StartTimer / TimerStarted: a timer is known by its place; its duration is an input."""

    @unchecked(strict_inputs=True)
    async def order(ctx: Context) -> None:
        await ctx.sleep(2)

    violation = violation_of(order, begun(), timer("0", 1), awaiting("0"))

    assert violation.message == "Timer(0) duration: journal has 1, code asked for 2.0"


def test_cancel_timer_validates_the_timer() -> None:
    """CancelTimer / TimerCancelled: timerId."""

    @unchecked()
    async def order(ctx: Context) -> None:
        first, second = ctx.sleep(1), ctx.sleep(2)
        second.cancel()
        await first

    violation = violation_of(
        order, begun(), timer("0", 1), timer("1", 2), ev.TimerCancelled(promise_id="0"), awaiting("1")
    )

    assert violation.message == "CancelTimer(0) promise_id: journal has '0', code asked for '1'"


def test_create_promise_validates_the_name() -> None:
    """CreatePromise / PromiseCreated: promiseId, which users know by its name."""

    @unchecked()
    async def order(ctx: Context) -> None:
        await ctx.promise("approval")

    violation = violation_of(order, begun(), ev.PromiseCreated(promise_id="0", name="payment"), awaiting("0"))

    assert violation.message == "Promise(0): journal has 'payment', code asked for 'approval'"


def test_resolve_promise_without_its_promise_is_never_shown_to_another() -> None:
    """ResolvePromise / PromiseResolved: promiseId. The fact belongs to the promise it names."""

    @unchecked()
    async def order(ctx: Context) -> None:
        await ctx.promise("second")

    violation = violation_of(
        order,
        begun(),
        ev.PromiseCreated(promise_id="0", name="first"),
        ev.PromiseCreated(promise_id="1", name="second"),
        awaiting("0"),
        ev.PromiseResolved(promise_id="0", result=ev.Result(ok="for the first")),
    )

    assert violation.message == "Promise(0): journal has 'first', code asked for 'second'"


def test_start_timer_validates_what_fired() -> None:
    """StartTimer / TimerStarted: timerId. A timer that fired at a step's place completes no step."""

    @unchecked()
    async def order(ctx: Context) -> str:
        return await ctx.invoke(charge_card, 1)

    violation = violation_of(
        order, begun(), task("0", "charge_card", 1), awaiting("0"), ev.TimerFired(promise_id="0"), valid=False
    )

    assert violation.message == (
        "Task at 0 completed_by: journal has 'TimerFired', code asked for 'InvokeCompleted'"
    )


def test_resolve_promise_validates_what_was_resolved() -> None:
    """ResolvePromise / PromiseResolved: promiseId. An answer that names a timer's place is nobody's."""

    @unchecked()
    async def order(ctx: Context) -> None:
        await ctx.sleep(1)

    answer = ev.PromiseResolved(promise_id="0", result=ev.Result(ok="for a promise"))
    violation = violation_of(order, begun(), timer("0", 1), awaiting("0"), answer, valid=False)

    assert violation.message == (
        "Timer at 0 completed_by: journal has 'PromiseResolved', code asked for 'TimerFired'"
    )


def test_a_fact_that_was_shown_must_be_in_the_journal() -> None:
    """``applied`` names a result that was never journaled: the code gets no made-up value."""

    @unchecked()
    async def order(ctx: Context) -> str:
        return await ctx.invoke(charge_card, 1)

    violation = violation_of(
        order, begun(), task("0", "charge_card", 1), awaiting("0"), resumed("0"), valid=False
    )

    assert (
        violation.message == "Task at 0 completed_by: journal has nothing, code asked for 'InvokeCompleted'"
    )


# Commands the matrix does not have


def test_a_signal_validates_its_name() -> None:
    """A wait has no event of its own: the suspension that lists it is what it is matched to."""

    @unchecked()
    async def order(ctx: Context) -> None:
        await ctx.signal("approved")

    wait = ev.ExecutionAwaiting(
        waiting_on=["0"],
        kind="signal",
        signal_name="paid",
        signal_promise_id="0",
        signals=[ev.SignalWait(promise_id="0", signal_name="paid")],
    )
    violation = violation_of(order, begun(), wait)

    assert violation.message == "Signal(0): journal has 'paid', code asked for 'approved'"


def test_a_join_set_validates_the_order_of_its_members() -> None:
    """JoinSetSubmitted is matched one by one: the same members in another order are other members."""

    @unchecked()
    async def order(ctx: Context) -> None:
        async with ctx.join_set() as joined:
            first, second = ctx.start(charge_card, 1), ctx.start(charge_card, 2)
            joined.submit(second)
            joined.submit(first)
            await joined.next()

    violation = violation_of(
        order,
        begun(),
        ev.JoinSetCreated(join_set_id="0"),
        task("1", "charge_card", 1),
        task("2", "charge_card", 2),
        ev.JoinSetSubmitted(join_set_id="0", promise_id="1"),
        ev.JoinSetSubmitted(join_set_id="0", promise_id="2"),
        awaiting("1", "2"),
    )

    assert violation.message == "JoinSet(0).submit(0) promise_id: journal has '1', code asked for '2'"


def test_a_join_set_validates_the_order_of_its_results() -> None:
    """JoinSetAwaited is matched one by one: a result handed out elsewhere is a violation."""

    @unchecked()
    async def order(ctx: Context) -> None:
        async with ctx.join_set() as joined:
            first, second = joined.submit(charge_card, 1), joined.submit(charge_card, 2)
            await asyncio.gather(first, second)
            await joined.next()

    violation = violation_of(
        order,
        begun(),
        ev.JoinSetCreated(join_set_id="0"),
        task("1", "charge_card", 1),
        ev.JoinSetSubmitted(join_set_id="0", promise_id="1"),
        task("2", "charge_card", 2),
        ev.JoinSetSubmitted(join_set_id="0", promise_id="2"),
        awaiting("1", "2"),
        *done("1", "x"),
        *done("2", "y"),
        resumed("1", "2"),
        ev.JoinSetAwaited(join_set_id="0", promise_id="2", result=ev.Result(ok="y")),
    )

    assert violation.message == "JoinSet(0).next(0) promise_id: journal has '2', code asked for '1'"


@pytest.mark.parametrize("journal_has", ["random", "uuid"])
def test_random_and_uuid_are_different_commands(journal_has: str) -> None:
    """A float is never returned where a UUID was drawn, nor the other way round."""

    @unchecked()
    async def order(ctx: Context) -> None:
        if journal_has == "random":
            ctx.uuid()
        else:
            ctx.random()
        await ctx.sleep(1)

    value = 0.5 if journal_has == "random" else "00000000-0000-4000-8000-000000000001"
    drawn = ev.RandomGenerated(promise_id="0", value=value)
    violation = violation_of(order, begun(), drawn, timer("1", 1), awaiting("1"))

    asked = "uuid" if journal_has == "random" else "random"
    assert violation.message == f"Random(0) kind: journal has '{journal_has}', code asked for '{asked}'"


def test_a_key_belongs_to_one_function_in_the_journal() -> None:
    """A keyed call that the journal has for another function is a violation, never its result."""

    @unchecked()
    async def order(ctx: Context) -> None:
        await ctx.invoke(send_receipt, key="final")

    violation = violation_of(order, begun(), task("0", "charge_card", key="final"), awaiting("0"))

    assert violation.message == "Task('final'): journal has 'charge_card', code asked for 'send_receipt'"


def test_a_key_belongs_to_one_function_in_the_code() -> None:
    """One key for two functions is a violation already when the code first asks."""

    @unchecked()
    async def order(ctx: Context) -> None:
        ctx.start(charge_card, key="final")
        await ctx.invoke(send_receipt, key="final")

    violation = violation_of(order, begun())

    assert violation.message == "Task('final'): journal has 'charge_card', code asked for 'send_receipt'"


def test_operations_and_tasks_have_keys_of_their_own() -> None:
    """Keys match by type and key, so a task may use the key of an operation that is another function."""

    @unchecked()
    async def order(ctx: Context) -> None:
        await ctx.run("final", quote)
        await ctx.invoke(send_receipt, key="final")

    violation = violation_of(
        order, begun(), operation("0", "quote", "final"), awaiting("0"), *done("0", 1), resumed("0"),
        task("1", "charge_card", key="final"), awaiting("1"),
    )  # fmt: skip

    assert violation.message == "Task('final'): journal has 'charge_card', code asked for 'send_receipt'"


def test_an_operation_turned_task_under_the_same_key_and_name_is_a_violation() -> None:
    """A step keeps its kind, also where it keeps its key and its function."""
    other = App("other")

    @other.task(name="quote")
    async def quote_task() -> int:
        return 3

    @unchecked()
    async def order(ctx: Context) -> None:
        await ctx.invoke(quote_task, key="price")

    violation = violation_of(order, begun(), operation("0", "quote", "price"), awaiting("0"))

    assert violation.message == "Operation('price') kind: journal has 'operation', code asked for 'function'"
