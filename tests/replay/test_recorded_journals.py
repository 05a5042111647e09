"""Journals recorded by earlier releases replay to the same outcome, for ever."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from tests.replay.workflows import app
from tidewheel.journal import events as ev
from tidewheel.journal import jsonform
from tidewheel.testing import ReplayReport, replay, verify

JOURNALS = sorted((pathlib.Path(__file__).parent / "journals").glob("*.json"))
EXPECTED: dict[str, dict[str, Any]] = {
    "blocked": {"outcome": "blocked", "waiting_on": ["9", "10"]},
    "cancelled": {"outcome": "cancelled"},
    "continued": {"outcome": "completed", "result": 42},
    "failed": {"outcome": "failed"},
    "ordered": {"outcome": "completed"},
    "second_opinion": {"outcome": "completed"},
}


def replayed(entries: list[ev.Entry]) -> ReplayReport:
    """Replay entries with the workflow they name."""
    started = entries[0].event
    assert isinstance(started, ev.ExecutionStarted)
    return replay(app.workflow_named(started.workflow), entries)


@pytest.mark.parametrize("path", JOURNALS, ids=lambda path: path.stem)
def test_a_recorded_journal_keeps_the_rules_and_replays_to_its_outcome(path: pathlib.Path) -> None:
    """What a release wrote, every later one reads and repeats."""
    entries = jsonform.loads(path.read_bytes())

    report = replayed(entries).to_json()

    assert verify(entries) == []
    assert {field: report[field] for field in EXPECTED[path.stem]} == EXPECTED[path.stem]
    assert report["same_code"] is True


@pytest.mark.parametrize("path", JOURNALS, ids=lambda path: path.stem)
def test_no_length_of_a_recorded_journal_is_a_violation(path: pathlib.Path) -> None:
    """Wherever a recording is cut, unchanged code fits it."""
    entries = jsonform.loads(path.read_bytes())

    for length in range(1, len(entries)):
        if not isinstance(entries[length - 1].event, ev.ExecutionContinued):
            assert replayed(entries[:length]).outcome != "violation"


def test_every_recording_is_expected_something_of() -> None:
    """A journal nobody looks at would prove nothing."""
    assert {path.stem for path in JOURNALS} == set(EXPECTED)
