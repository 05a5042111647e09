"""Commands that can never be followed: each is a dead letter that says why, and holds up nobody."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.unit.workers.house import House
from tests.unit.workers.postbox import Postbox
from tests.unit.workers.test_commands import app
from tidewheel import App
from tidewheel.broker.topology import reply_queue, work_queue
from tidewheel.sdk.limits import Limits
from tidewheel.workers.config import WorkerConfig

#: What is published under which key, and what is then said of it; without a key here it is a start.
REFUSED: dict[str, tuple[bytes | dict[str, Any], str]] = {
    "not JSON": (b"\xff not json", "not a command, which is a JSON object"),
    "no object": (b"[]", "not a command, which is a JSON object"),
    "deep": (b'{"workflow":"steps","input":' + b"[" * 50_000, "recursion"),
    "an unknown field": ({"workflow": "steps", "args": [1]}, "unknown field `args`"),
    "a wrong type": ({"workflow": "steps", "input": 1}, r"Expected `array`, got `int` - at `\$.input`"),
    "a workflow's name": ({"workflow": "a b"}, "workflow 'a b' is not allowed"),
    "no workflow's name": ({"workflow": ""}, "workflow '' is not allowed"),
    "a run's id": ({"workflow": "hurries", "input": [0], "run_id": "a:b"}, "run id 'a:b' is not allowed"),
    "a queue": ({"workflow": "hurries", "input": [0], "queue": "a.b"}, "queue 'a.b' is not allowed"),
    "a namespace": ({"workflow": "hurries", "input": [0], "namespace": "*"}, r"namespace '\*' is not"),
    "a request's id": ({"workflow": "hurries", "input": [0], "request_id": ""}, "request_id '' is not"),
    "a key": ({"workflow": "hurries", "input": [0], "idempotency_key": "k" * 201}, "idempotency_key 'kkk"),
    "a version": ({"workflow": "hurries", "input": [0], "version": "a\nb"}, "version .* is not allowed"),
    "nobody's queue": (
        {"workflow": "hurries", "input": [0], "reply_to": work_queue("default", "default")},
        "reply_to 'tidewheel.work.default' is no client's queue",
    ),
    "a long queue": (
        {"workflow": "hurries", "input": [0], "reply_to": reply_queue("c" * 250)},
        "reply_to is 266 bytes, and the limit is 255",
    ),
    "no argument": ({"workflow": "steps"}, r"steps takes \(count\), but 0 arguments were given"),
    "an argument too many": ({"workflow": "steps", "input": [1, 2]}, "2 arguments were given"),
    "an argument's type": ({"workflow": "steps", "input": ["one"]}, r"input\[0\]: expected a whole number"),
    "an argument that refuses": (
        {"workflow": "picks", "input": [{"number": 0}]},
        "the input of picks cannot be read: ZeroDivisionError",
    ),
    "a large input": ({"workflow": "elsewhere", "input": ["x" * 2_000]}, "the input of elsewhere is 2,0"),
    "a start without its workflow": (
        {"run_id": "r"},
        "not a start command, .* missing required field `workflow`",
    ),
    "a cancel called signal": ({"KEY": "signal", "run_id": "r"}, "not a signal command, .*`name`"),
    "a start called cancel": ({"KEY": "cancel", "workflow": "steps"}, "not a cancel command, .*`workflow`"),
    "a signal's name": ({"KEY": "signal", "run_id": "r", "name": "a b"}, "signal 'a b' is not allowed"),
    "a signal's run": ({"KEY": "signal", "run_id": "r:x", "name": "go"}, "'x' is not a promise path"),
    "a large signal": (
        {"KEY": "signal", "run_id": "r", "name": "go", "payload": "x" * 2_000},
        "the payload of signal 'go' is 2,0",
    ),
    "a signal's request": (
        {"KEY": "signal", "run_id": "r", "name": "go", "request_id": "\n"},
        "request_id .* is not allowed",
    ),
    "a cancel's run": ({"KEY": "cancel", "run_id": ""}, "run id '' is not allowed"),
    "a long reason": ({"KEY": "cancel", "run_id": "r", "reason": "x" * 2_000}, "reason is 2,000 bytes"),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_what_can_never_be_followed_is_a_dead_letter_that_says_why(
    house: House, postbox: Postbox, what: str
) -> None:
    """It is delivered once, nothing is written, and the command behind it is followed without delay."""
    given, reason = REFUSED[what]
    await house.worker(app, WorkerConfig(prefetch=1), Limits(payload_max_bytes=1_024, signal_max_bytes=1_024))
    body, fields = (given, {}) if isinstance(given, bytes) else (None, given)

    await postbox.post(fields.get("KEY", "start"), body, **{k: v for k, v in fields.items() if k != "KEY"})
    await postbox.start("steps", 2, run_id="good")
    await house.until(lambda: bool(house.store.rows.runs) and house.run("good").ended, seconds=0.1)

    (told,) = await postbox.reasons()
    assert await postbox.runs() == {"good": "COMPLETED"}
    assert re.search(reason, told)


async def test_a_worker_without_the_workflow_does_not_judge_its_arguments(
    house: House, postbox: Postbox
) -> None:
    """By its name alone nothing is known of it: the run fails where it is executed, as a client's would."""
    await house.worker(App("bare"), WorkerConfig(queues=("other",)))

    await postbox.start("steps", "not a number", run_id="r")
    await house.until(lambda: bool(house.store.rows.runs))

    assert await postbox.reasons() == []
