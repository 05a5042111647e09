"""The budget for writing what happens to steps: what it may be, and what it decides."""

from __future__ import annotations

import datetime as dt

import pytest

from tidewheel import InvalidRequest
from tidewheel.journal import events as ev
from tidewheel.journal.retry import RetryPolicy
from tidewheel.store.append import Completed, Fact, Retrying, Started
from tidewheel.workers.write_budget import StateStoreConfig, after_failed_write

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
BUDGET = "TIDEWHEEL_WRITE_LATENCY_BUDGET_MS"
FAIL_OPEN = "TIDEWHEEL_FAIL_OPEN_FOR_EVENT_CLASS"
NEVER = "TIDEWHEEL_NEVER_FAIL_OPEN"


# What it may be


def test_the_defaults_are_those_of_the_contract() -> None:
    """Three seconds; starts may be late, outcomes never."""
    config = StateStoreConfig.from_environment({})

    assert config.write_latency_budget_ms == 3000
    assert config.fail_open_for_event_class == ("StepStarted",)
    assert config.never_fail_open == ("StepCompleted", "StepFailed")
    assert config.budget_s == 3.0
    assert config.starts_may_be_late


@pytest.mark.parametrize("named", [(), ("none",)])
def test_nothing_may_fail_open(named: tuple[str, ...]) -> None:
    """In a variable the word stands for it: one that is set to nothing counts as not set."""
    assert not StateStoreConfig(fail_open_for_event_class=named).starts_may_be_late


def test_each_key_is_a_variable() -> None:
    """A list has commas between."""
    environ = {BUDGET: "250", FAIL_OPEN: "none", NEVER: "StepStarted, StepCompleted, StepFailed"}
    config = StateStoreConfig.from_environment(environ)

    assert config.budget_s == 0.25
    assert not config.starts_may_be_late
    assert config.never_fail_open == ("StepStarted", "StepCompleted", "StepFailed")


@pytest.mark.parametrize(
    ("variable", "value", "why"),
    [
        (BUDGET, "-1", "at least|from 1"),
        (BUDGET, "0", "from 1"),
        (BUDGET, "3s", "whole number of milliseconds"),
        (BUDGET, "1.5", "whole number of milliseconds"),
        (FAIL_OPEN, "StepCompleted", "StepCompleted may not fail open, only StepStarted may"),
        (FAIL_OPEN, "StepStarted,StepFailed", "StepFailed may not fail open"),
        (FAIL_OPEN, "RunStarted", "RunStarted may not fail open"),
        (FAIL_OPEN, "stepstarted", "no event class 'stepstarted'"),
        (FAIL_OPEN, "none,StepStarted", "'none' alone"),
        (NEVER, "StepCompleted", "StepFailed must not be left out"),
        (NEVER, "none", "StepCompleted and StepFailed must not be left out"),
        (NEVER, "StepCompleted,StepFailed,Everything", "no event class 'Everything'"),
    ],
)
def test_a_value_that_cannot_work_is_refused_by_name(variable: str, value: str, why: str) -> None:
    """With what to write instead."""
    with pytest.raises(InvalidRequest, match=f"{variable}.*({why})"):
        StateStoreConfig.from_environment({variable: value})


def test_an_event_class_is_in_one_list_alone() -> None:
    """Nobody could say which of the two counts."""
    environ = {NEVER: "StepStarted,StepCompleted,StepFailed"}

    with pytest.raises(InvalidRequest, match=f"StepStarted is in {FAIL_OPEN} and in {NEVER}"):
        StateStoreConfig.from_environment(environ)


# What it decides


def _scheduled(attempts: int | None, dispatch: str = "inline") -> ev.InvokeScheduled:
    policy = None if attempts is None else RetryPolicy(max_attempts=attempts)
    return ev.InvokeScheduled(
        promise_id="0",
        kind="function" if attempts else "operation",
        function_name="pay",
        input=[],
        n=0,
        retry_policy=policy,
        dispatch="queued" if dispatch == "queued" else "inline",
    )


def _after(fact: Fact, taken_s: float, event: ev.InvokeScheduled | None = None) -> Fact:
    return after_failed_write(StateStoreConfig(), event or _scheduled(3), fact, taken_s, NOW)


RESULT = Completed(path="0", attempt=1, result=ev.Result(ok=7), owner="me")
FAILURE = ev.Result(error=ev.Error(type="ValueError", message="no", retryable=False))


@pytest.mark.parametrize("taken_s", [0.0, 2.9, 3.0])
def test_a_result_within_the_budget_is_written_later(taken_s: float) -> None:
    """A store that is away takes no time: results wait for it as long as they have to."""
    assert _after(RESULT, taken_s) is RESULT


@pytest.mark.parametrize(
    "fact",
    [
        Started(path="0", attempt=1, owner="me"),
        Completed(path="0", attempt=1, result=FAILURE, owner="me"),
        Retrying(path="0", attempt=1, error=ev.Error(type="E", message=""), retry_at=NOW, owner="me"),
    ],
    ids=lambda fact: type(fact).__name__,
)
def test_only_a_result_is_given_up(fact: Fact) -> None:
    """What has failed already stays as it failed, and a start is not an outcome."""
    assert _after(fact, 60.0) is fact


@pytest.mark.parametrize(("dispatch", "next_owner"), [("inline", "me"), ("queued", None)])
def test_a_result_over_the_budget_fails_its_attempt(dispatch: str, next_owner: str | None) -> None:
    """It is tried again at once, and the error says why."""
    instead = _after(RESULT, 4.25, _scheduled(3, dispatch))

    assert isinstance(instead, Retrying)
    assert (instead.path, instead.attempt, instead.retry_at) == ("0", 1, NOW)
    assert (instead.owner, instead.next_owner) == ("me", next_owner)
    assert instead.error.type == "WriteBudgetExceeded"
    assert "the store took 4.2 s over the result of pay" in instead.error.message
    assert "the budget is 3 s" in instead.error.message


@pytest.mark.parametrize(
    ("attempts", "attempt", "is_last"),
    [(1, 1, True), (2, 1, False), (2, 2, True), (None, 1, False), (None, 3, True)],
)
def test_the_policy_bounds_how_often_it_is_tried_again(
    attempts: int | None, attempt: int, is_last: bool
) -> None:
    """As for a worker that was lost: a closure without a policy has three executions."""
    result = Completed(path="0", attempt=attempt, result=ev.Result(ok=7), owner="me")
    instead = _after(result, 4.0, _scheduled(attempts))

    assert isinstance(instead, Completed) == is_last
    if isinstance(instead, Completed):
        assert isinstance(instead.result.error, ev.Error)
        assert instead.result.error.type == "WriteBudgetExceeded"
        assert instead.result.error.attempts == attempt
