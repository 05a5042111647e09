"""Snapshots as JSON for databases: what no database has a place for comes back as it was."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel.journal.snapshot import Failure, RunSnapshot
from tidewheel.store.snapshot_json import from_text, to_text

SIGN = "\N{SYMBOL FOR NULL}"


@given(st.text(alphabet=st.sampled_from(["\0", SIGN, "0", "\\", "u", "a", "雪"])))
def test_any_message_comes_back_as_it_was(message: str) -> None:
    """Also one that has the signs in it that stand for NUL."""
    snapshot = RunSnapshot(run_id="r", root_cause=Failure(code="E", message=message))

    text = to_text(snapshot)

    assert from_text(text, RunSnapshot) == snapshot
    assert "\\u0000" not in text.replace("\\\\", "")


@pytest.mark.parametrize(
    ("message", "written"), [("a\0b", f"a{SIGN}0b"), (SIGN, SIGN * 2), ("\\u0000", "\\u0000")]
)
def test_people_see_a_sign_where_there_is_no_character(message: str, written: str) -> None:
    """Everything else is as it is."""
    text = to_text(RunSnapshot(run_id="r", root_cause=Failure(code="E", message=message)))

    assert json.loads(text)["rootCause"]["message"] == written


def test_a_sign_of_somebody_else_is_left_alone() -> None:
    """Rows may have been written by hand."""
    text = to_text(RunSnapshot(run_id="r")).replace('"runId":"r"', f'"runId":"{SIGN}x{SIGN}"')

    assert from_text(text, RunSnapshot).run_id == f"{SIGN}x{SIGN}"


def test_equal_snapshots_have_one_text() -> None:
    """It is canonical: the names are sorted."""
    names = list(json.loads(to_text(RunSnapshot(run_id="r"))))

    assert names == sorted(names)
