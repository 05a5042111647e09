"""Log lines in JSON say what they are about: the run, the step, the attempt, and where in a trace."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from tests.unit.telemetry.recording import Recording
from tidewheel.cli.logs import JsonFormatter
from tidewheel.journal import events as ev
from tidewheel.sdk.current_task import CurrentTask, enter_task
from tidewheel.store.records import RunRef
from tidewheel.telemetry import names, switch
from tidewheel.workers.attempt import Attempt

RUN = RunRef("shop", "order-1")


def written(message: str, *arguments: Any, **extra: Any) -> dict[str, Any]:
    """Return what a line says beside its time."""
    logger = logging.getLogger("tidewheel.test")
    record = logger.makeRecord(
        logger.name, logging.WARNING, __file__, 1, message, arguments, None, extra=extra or None
    )
    said: dict[str, Any] = json.loads(JsonFormatter().format(record))
    return {name: value for name, value in said.items() if name not in ("at", "level", "logger")}


def test_a_line_about_a_run_names_it() -> None:
    """The run is an argument of the text, and a field beside it."""
    assert written("run %s waits for %s", RUN, "the store") == {
        "message": "run order-1 waits for the store",
        "run_id": "order-1",
        "namespace": "shop",
    }


def test_a_line_about_an_attempt_names_its_step() -> None:
    """Which promise, and which execution of it."""
    event = ev.InvokeScheduled(promise_id="2", function_name="charge")
    attempt = Attempt(run=RUN, event=event, number=3, owner="w", elapsed=0.0)

    said = written("%s broke", attempt)

    assert said["message"] == "attempt 3 of charge broke"
    assert (said["run_id"], said["step"], said["attempt"], said["task"]) == ("order-1", "2", 3, "charge")


def test_what_a_record_says_itself_comes_first() -> None:
    """Fields that were given are not overwritten."""
    assert written("said", fields={"run_id": "mine", "count": 2}, run=RUN) == {
        "message": "said",
        "run_id": "mine",
        "namespace": "shop",
        "count": 2,
    }


async def test_a_line_that_is_written_in_a_task_names_it() -> None:
    """Whatever library writes it: nobody has to pass anything."""
    enter_task(CurrentTask(run_id="order-1", attempt=2, idempotency_key="order-1:0"))

    assert written("sending mail") == {
        "message": "sending mail",
        "run_id": "order-1",
        "step": "0",
        "attempt": 2,
    }


@pytest.fixture
def recording() -> Any:
    """Telemetry that is on."""
    made = Recording()
    switch.turn_on(made.recorder)
    yield made
    switch.turn_off()


async def test_a_line_says_in_which_span_it_was_written(recording: Recording) -> None:
    """The ids are those that a trace is looked up by."""
    span = recording.recorder.spans.begin(names.STEP_HERE, "charge")
    span.enter()

    said = written("sending mail")

    assert (said["trace_id"], said["span_id"]) == (span.trace.trace_id, span.trace.span_id)


def test_a_line_about_a_run_says_where_that_is_in_its_trace(recording: Recording) -> None:
    """Also where nobody is in a span of it."""
    span = recording.recorder.spans.begin(names.ACTIVATE, "order")
    recording.recorder.runs.of(RUN).latest = span.trace

    assert written("run %s waits", RUN)["trace_id"] == span.trace.trace_id
    assert "trace_id" not in written("run %s waits", RunRef("shop", "another"))
