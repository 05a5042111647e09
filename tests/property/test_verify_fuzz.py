"""``verify_bytes`` answers any bytes with breaches and never raises.

Inputs are journals that were damaged: bytes flipped and cut, tokens swapped, parts of
the parsed list moved or replaced; and JSON and bytes that never were journals. The
seed is fixed, so a failure repeats. ``make fuzz`` runs the long form.
"""

from __future__ import annotations

import copy
import json
import os
import random
import re
from typing import TYPE_CHECKING, Any

from tidewheel.journal import events as ev
from tidewheel.journal.jsonform import dumps
from tidewheel.journal.rules import RULES
from tidewheel.journal.verify import FORMAT, verify_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

INPUTS = int(os.environ.get("TIDEWHEEL_FUZZ_INPUTS", "30000"))
SEED = 20250131
KNOWN = {FORMAT, *RULES}
TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9.eE+]+|true|false|null|[][{}:,]')
#: Values that break what expects something else.
ODD: list[Any] = [
    None, True, False, 0, 1, -1, 2**63, 2**64, 2**80, 1e308, -0.0, "", "0", "1", "1.0", "01", "cancel",
    "\x00", "\U0001f600", "x" * 200, [], {}, [[]], {"ok": 1}, {"error": {}}, {"error": {"type": "E"}},
    "any", "signal", "2025-01-31T12:00:00Z", *ev.EVENT_TYPES,
]  # fmt: skip
RESULT = ev.Result(ok={"a": [1, 2.5, "x"]})


def _journal(*events: ev.Event) -> bytes:
    return dumps(ev.Entry(number, None, event) for number, event in enumerate(events))


STEPS = _journal(
    ev.ExecutionStarted(workflow="order", input=[42], admission="approval"),
    ev.RunApproved(),
    ev.RunAdmitted(),
    ev.InvokeScheduled(promise_id="0", function_name="charge", n=0),
    ev.ExecutionAwaiting(waiting_on=["0"], kind="single"),
    ev.InvokeStarted(promise_id="0", attempt=1),
    ev.InvokeRetrying(promise_id="0", failed_attempt=1, error=ev.Error(type="Timeout")),
    ev.StepRetryRequested(promise_id="0", logical_attempt=2),
    ev.InvokeStarted(promise_id="0", attempt=2),
    ev.InvokeCompleted(promise_id="0", attempt=2, result=RESULT),
    ev.ExecutionResumed(applied=["0"]),
    ev.JoinSetCreated(join_set_id="1"),
    ev.InvokeScheduled(promise_id="2", kind="workflow"),
    ev.JoinSetSubmitted(join_set_id="1", promise_id="2"),
    ev.ExecutionAwaiting(waiting_on=["2"], kind="any"),
    ev.StepSkipped(promise_id="2", result=RESULT),
    ev.ExecutionResumed(applied=["2"]),
    ev.JoinSetAwaited(join_set_id="1", promise_id="2", result=RESULT),
    ev.ExecutionCompleted(result=RESULT),
)
SIGNALS = _journal(
    ev.ExecutionStarted(),
    ev.SignalAccepted(signal_id="s1", signal_name="go"),
    ev.SignalDelivered(signal_name="go", delivery_id=1, payload={"yes": True}),
    ev.SignalReceived(promise_id="0", signal_name="go", delivery_id=1, payload={"yes": True}),
    ev.ExecutionAwaiting(waiting_on=["1"], kind="signal", signal_name="go", signal_promise_id="1"),
    ev.SignalRejected(signal_id="s2", reason="no"),
    ev.SignalDelivered(signal_name="go", delivery_id=2),
    ev.SignalReceived(promise_id="1", signal_name="go", delivery_id=2),
    ev.ExecutionResumed(applied=["1"]),
    ev.PromiseCreated(promise_id="2", name="external"),
    ev.ExecutionAwaiting(waiting_on=["2"], kind="all"),
    ev.CancelRequested(reason="enough"),
    ev.ExecutionResumed(applied=["cancel"]),
    ev.ExecutionCancelled(),
)
SEGMENTS = _journal(
    ev.ExecutionStarted(),
    ev.RandomGenerated(promise_id="0", value=0.5),
    ev.TimeRecorded(promise_id="1"),
    ev.TimerScheduled(promise_id="2", duration=1),
    ev.TimerCancelled(promise_id="2"),
    ev.StateSet(key="k", value=[1]),
    ev.ExecutionContinued(next_position=3),
    ev.ExecutionStarted(state={"k": [1]}),
    ev.StateCleared(key="k"),
    ev.TimerScheduled(promise_id="3", duration=1),
    ev.RunPaused(),
    ev.TimerFired(promise_id="3"),
    ev.RunResumed(),
    ev.PromiseCreated(promise_id="4"),
    ev.PromiseResolved(promise_id="4", result=RESULT),
    ev.Recorded(name="done"),
    ev.ExecutionFailed(),
)
VALID = (STEPS, SIGNALS, SEGMENTS)


def _flip_bytes(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def _cut_bytes(rng: random.Random, data: bytes) -> bytes:
    start, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    return rng.choice((data[:start], data[end:], data[:start] + data[end:], data[:end] + data[start:]))


def _swap_tokens(rng: random.Random, data: bytes) -> bytes:
    tokens = TOKEN.findall(data)
    for _ in range(rng.randint(1, 4)):
        one, other = rng.randrange(len(tokens)), rng.randrange(len(tokens))
        tokens[one], tokens[other] = tokens[other], tokens[one]
    return b"".join(tokens)


def _move_entries(rng: random.Random, data: bytes) -> bytes:
    rows = json.loads(data)
    for _ in range(rng.randint(1, 3)):
        row = rows.pop(rng.randrange(len(rows)))
        copies = rng.choice((0, 1, 1, 2)) if rows else 1
        for _ in range(copies):
            rows.insert(rng.randrange(len(rows) + 1), row)
    if rng.random() < 0.5:
        rows = [{**row, "run_seq": number} for number, row in enumerate(rows)]
    return json.dumps(rows).encode()


def _change_values(rng: random.Random, data: bytes) -> bytes:
    rows = json.loads(data)
    for _ in range(rng.randint(1, 4)):
        node = rng.choice((rows, rng.choice(rows), rng.choice(rows)))
        while isinstance(node, dict | list) and node:
            key = rng.choice(list(node) if isinstance(node, dict) else range(len(node)))
            inner = node[key]
            if not isinstance(inner, dict | list) or rng.random() < 0.3:
                node[key] = copy.deepcopy(rng.choice(ODD))
                break
            node = inner
    return json.dumps(rows).encode()


def _random_json(rng: random.Random, _: bytes) -> bytes:
    def value(depth: int) -> Any:
        if depth == 0 or rng.random() < 0.3:
            return rng.choice(ODD)
        if rng.random() < 0.5:
            return [value(depth - 1) for _ in range(rng.randrange(4))]
        names = ("run_seq", "type", "at", "data", "promise_id", "result", "payload")
        return {rng.choice(names): value(depth - 1) for _ in range(rng.randrange(5))}

    return json.dumps(value(5)).encode()


def _random_bytes(rng: random.Random, _: bytes) -> bytes:
    return rng.randbytes(rng.randrange(60))


def _nest(rng: random.Random, data: bytes) -> bytes:
    depth = rng.choice((5, 50, 400, 2000))
    where = rng.randrange(len(data) + 1)
    return data[:where] + b"[" * depth + b"]" * rng.choice((depth, 0)) + data[where:]


DAMAGE: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    _flip_bytes, _cut_bytes, _swap_tokens, _move_entries, _move_entries, _change_values, _change_values,
    _random_json, _random_bytes, _nest,
)  # fmt: skip


def test_undamaged_journals_are_valid() -> None:
    """What the damaged inputs are made of has no breach, so every breach comes from the damage."""
    assert [verify_bytes(data) for data in VALID] == [[], [], []]


def test_any_bytes_have_an_answer() -> None:
    """The verifier returns known breaches for every input, sorted, and keeps nothing between inputs."""
    rng = random.Random(SEED)  # damage, not secrets
    seen: set[str] = set()
    for _ in range(INPUTS):
        data = rng.choice(DAMAGE)(rng, rng.choice(VALID))
        breaches = verify_bytes(data)
        seen.update(breach.rule for breach in breaches)
        places = [-1 if breach.run_seq is None else breach.run_seq for breach in breaches]
        assert places == sorted(places), data
        assert all(breach.message for breach in breaches), data

    assert seen <= KNOWN
    assert INPUTS < 10_000 or len(seen) > len(KNOWN) / 2, "the damage must reach the rules"
    assert [verify_bytes(data) for data in VALID] == [[], [], []]
