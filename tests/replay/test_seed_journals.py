"""The three journals that the journal's specification prints come out of real executions.

They are also replayed as a stranger would write them down: without the fields that only
our own writer adds (``n``, ``applied``, ``now``, ``workflow``).
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidewheel import App, Context, Retry
from tidewheel.testing import Environment, Handle, replay, verify

app = App("printed")


@app.task
async def fetch_user(user_id: int) -> dict[str, int]:
    """Find a user."""
    return {"id": user_id}


@app.task(retry=Retry(jitter=0.0))
async def send_email(user: dict[str, int]) -> str:
    """Send an e-mail."""
    return f"email to {user['id']}"


@app.task
async def send_sms(user: dict[str, int]) -> str:
    """Send a text message."""
    return f"sms to {user['id']}"


@app.task
async def create_order(item: str) -> str:
    """Create an order."""
    return f"order of {item}"


@app.workflow
async def full_example(ctx: Context) -> list[str]:
    """Invoke a task, draw a random number, use a join set, complete."""
    ctx.random()
    user = await ctx.invoke(fetch_user, 42)
    async with ctx.join_set() as results:
        results.submit(send_email, user)
        results.submit(send_sms, user)
        return [result async for result in results]


@app.workflow
async def approval(ctx: Context) -> bool:
    """Create an order, then wait for somebody's approval."""
    await ctx.invoke(create_order, "tea")
    answer = await ctx.signal("user_approval")
    return bool(answer["approved"])


async def shape(handle: Handle[Any]) -> list[tuple[Any, ...]]:
    """What the specification prints of each event: its type and what it names."""
    shown = []
    for entry in await handle.journal():
        event: Any = entry.event
        named = [
            getattr(event, field)
            for field in ("join_set_id", "promise_id", "waiting_on", "kind", "attempt", "failed_attempt")
            if isinstance(getattr(event, field, None), str | int | list)
        ]
        shown.append((type(event).__name__, *named))
    return shown


async def test_the_full_example_is_written_event_by_event() -> None:
    """A join set whose second member ends first and whose first is retried."""
    calls = []

    def flaky(user: dict[str, int]) -> str:
        calls.append(user)
        if len(calls) == 1:
            message = "busy"
            raise ConnectionError(message)
        return "email"

    async with Environment(app) as env:
        env.fake(send_email, flaky, takes=2)
        env.fake(send_sms, returns="sms", takes=1)
        handle = await env.client.start(full_example)
        assert await handle.result() == ["sms", "email"]

        assert await shape(handle) == [
            ("ExecutionStarted",),
            ("RandomGenerated", "0", "random"),
            ("InvokeScheduled", "1", "function"),
            ("ExecutionAwaiting", ["1"], "single"),
            ("InvokeStarted", "1", 1),
            ("InvokeCompleted", "1", 1),
            ("ExecutionResumed",),
            ("JoinSetCreated", "2"),
            ("InvokeScheduled", "3", "function"),
            ("JoinSetSubmitted", "2", "3"),
            ("InvokeScheduled", "4", "function"),
            ("JoinSetSubmitted", "2", "4"),
            ("ExecutionAwaiting", ["3", "4"], "any"),
            ("InvokeStarted", "4", 1),
            ("InvokeCompleted", "4", 1),
            ("ExecutionResumed",),
            ("JoinSetAwaited", "2", "4"),
            ("ExecutionAwaiting", ["3"], "any"),
            ("InvokeStarted", "3", 1),
            ("InvokeRetrying", "3", 1),
            ("InvokeStarted", "3", 2),
            ("InvokeCompleted", "3", 2),
            ("ExecutionResumed",),
            ("JoinSetAwaited", "2", "3"),
            ("ExecutionCompleted",),
        ]


async def test_a_buffered_signal_is_consumed_without_blocking() -> None:
    """A signal that lands before the code asks stands just before ``ExecutionResumed``."""
    async with Environment(app) as env:
        env.fake(create_order, returns="order", takes=5)
        handle = await env.client.start(approval)
        env.after(5, handle.signal, "user_approval", {"approved": True})
        assert await handle.result() is True

        names = [name for name, *_ in await shape(handle)]
    delivered = names.index("SignalDelivered")
    assert names[:delivered] in (
        ["ExecutionStarted", "InvokeScheduled", "ExecutionAwaiting"],
        ["ExecutionStarted", "InvokeScheduled", "ExecutionAwaiting", "InvokeStarted", "InvokeCompleted"],
    )
    assert names[-3:] == ["ExecutionResumed", "SignalReceived", "ExecutionCompleted"]


async def test_a_blocking_signal_is_received_before_the_run_resumes() -> None:
    """Blocked, delivered, received, resumed, completed."""
    async with Environment(app) as env:
        handle = await env.client.start(approval)
        env.after(3_600, handle.signal, "user_approval", {"approved": True})
        assert await handle.result() is True

        assert (await shape(handle))[5:] == [
            ("ExecutionResumed",),
            ("ExecutionAwaiting", ["1"], "signal"),
            ("SignalDelivered",),
            ("SignalReceived", "1"),
            ("ExecutionResumed",),
            ("ExecutionCompleted",),
        ]


# As a stranger would write them down.

_AT = "2026-01-01T00:00:00Z"


def written(*events: tuple[str, dict[str, Any]]) -> bytes:
    """A journal in JSON."""
    return json.dumps(
        [{"run_seq": seq, "type": name, "at": _AT, "data": data} for seq, (name, data) in enumerate(events)]
    ).encode()


def step(path: str, name: str, given: list[Any], result: Any) -> list[tuple[str, dict[str, Any]]]:
    """A step from its schedule to the code's resumption."""
    return [
        ("InvokeScheduled", {"promise_id": path, "kind": "function", "function_name": name, "input": given}),
        ("ExecutionAwaiting", {"waiting_on": [path], "kind": "single"}),
        ("InvokeStarted", {"promise_id": path, "attempt": 1}),
        ("InvokeCompleted", {"promise_id": path, "attempt": 1, "result": {"ok": result}}),
        ("ExecutionResumed", {}),
    ]


STARTED = ("ExecutionStarted", {"component_digest": "abc", "input": []})
SIGNAL = {"signal_name": "user_approval", "payload": {"approved": True}, "delivery_id": 1}
ENDED = ("ExecutionCompleted", {"result": {"ok": True}})
BUFFERED = written(
    STARTED,
    *step("0", "create_order", ["tea"], "order"),
    ("SignalDelivered", SIGNAL),
    ("SignalReceived", {"promise_id": "1", **SIGNAL}),
    ENDED,
)
BLOCKING = written(
    STARTED,
    *step("0", "create_order", ["tea"], "order"),
    (
        "ExecutionAwaiting",
        {
            "waiting_on": ["1"],
            "kind": "signal",
            "signal_name": "user_approval",
            "signal_promise_id": "1",
        },
    ),
    ("SignalDelivered", SIGNAL),
    ("SignalReceived", {"promise_id": "1", **SIGNAL}),
    ("ExecutionResumed", {}),
    ENDED,
)


def invoked(path: str, name: str) -> tuple[str, dict[str, Any]]:
    """The schedule of a message."""
    return ("InvokeScheduled", {"promise_id": path, "function_name": name, "input": [{"id": 42}]})


def done(path: str, attempt: int, result: str) -> tuple[str, dict[str, Any]]:
    """The completion of a message."""
    return ("InvokeCompleted", {"promise_id": path, "attempt": attempt, "result": {"ok": result}})


FULL = written(
    STARTED,
    ("RandomGenerated", {"promise_id": "0", "value": 6699}),
    *step("1", "fetch_user", [42], {"id": 42}),
    ("JoinSetCreated", {"join_set_id": "2"}),
    invoked("3", "send_email"),
    ("JoinSetSubmitted", {"join_set_id": "2", "promise_id": "3"}),
    invoked("4", "send_sms"),
    ("JoinSetSubmitted", {"join_set_id": "2", "promise_id": "4"}),
    ("ExecutionAwaiting", {"waiting_on": ["3", "4"], "kind": "any"}),
    ("InvokeStarted", {"promise_id": "4", "attempt": 1}),
    done("4", 1, "sms"),
    ("ExecutionResumed", {}),
    ("JoinSetAwaited", {"join_set_id": "2", "promise_id": "4", "result": {"ok": "sms"}}),
    ("ExecutionAwaiting", {"waiting_on": ["3"], "kind": "any"}),
    ("InvokeStarted", {"promise_id": "3", "attempt": 1}),
    ("InvokeRetrying", {"promise_id": "3", "failed_attempt": 1, "error": {"type": "Busy"}, "retry_at": _AT}),
    ("InvokeStarted", {"promise_id": "3", "attempt": 2}),
    done("3", 2, "email"),
    ("ExecutionResumed", {}),
    ("JoinSetAwaited", {"join_set_id": "2", "promise_id": "3", "result": {"ok": "email"}}),
    ("ExecutionCompleted", {"result": {"ok": ["sms", "email"]}}),
)


@pytest.mark.parametrize(
    ("workflow", "journal", "result"),
    [
        pytest.param(full_example, FULL, ["sms", "email"], id="full"),
        pytest.param(approval, BUFFERED, True, id="buffered"),
        pytest.param(approval, BLOCKING, True, id="blocking"),
    ],
)
def test_the_printed_journals_are_valid_and_replay(workflow: Any, journal: bytes, result: Any) -> None:
    """Readers tolerate missing fields that no rule needs."""
    assert verify(journal) == []

    report = replay(workflow, journal)

    assert (report.outcome, report.result) == ("completed", result)
