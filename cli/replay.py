"""``tidewheel replay``: whether today's code still does what the journal says it did."""

from __future__ import annotations

import contextlib
import json
import sys

from msgspec import UNSET

from tidewheel.cli import apps, output
from tidewheel.cli.exit_codes import ExitCode
from tidewheel.cli.failure import Failure
from tidewheel.cli.recorded import Source
from tidewheel.journal.events import Entry, ExecutionStarted
from tidewheel.journal.verify import verify
from tidewheel.testing.replaying import ReplayReport, replay

#: What a journal's replay may come to without anything being wrong.
GOOD = frozenset({"completed", "blocked", "continued"})


def run(reference: str, source: Source, workflow: str | None, *, as_json: bool) -> ExitCode:
    """Print the report."""
    entries = source.read()
    app = apps.load(reference, warn=not as_json)
    definition = apps.workflow_of(app, recorded_workflow(entries), workflow)
    _warn_if_broken(entries, source, as_json=as_json)
    with contextlib.redirect_stdout(sys.stderr):  # what the workflow itself prints
        report = replay(definition, entries)
    shown = report.to_json()
    if as_json or not output.is_terminal():
        output.emit_json(shown)
    else:
        output.emit(json.dumps(shown, ensure_ascii=False, indent=2))
    if not as_json:
        output.say(f"{source.shown}: {definition.name} {_in_words(report)}")
    return ExitCode.OK if report.outcome in GOOD else ExitCode.FINDING


def recorded_workflow(entries: list[Entry]) -> str:
    """Return the name of the workflow whose journal *entries* is, empty where it does not say."""
    if not entries:
        message = "the journal is empty: it does not even have a start"
        raise Failure.invalid(message)
    first = entries[0].event
    if not isinstance(first, ExecutionStarted):
        message = f"a journal begins with ExecutionStarted, this one with {type(first).__name__}"
        raise Failure.invalid(message, "a journal is replayed from its first event")
    return first.workflow


def _warn_if_broken(entries: list[Entry], source: Source, *, as_json: bool) -> None:
    breaches = verify(entries)
    if breaches:
        rules = ", ".join(dict.fromkeys(breach.rule for breach in breaches))
        see = f"tidewheel journal verify {source.verify_arguments}"
        output.warn(
            f"the journal breaks {rules}, so its replay may mean little; see `{see}`", as_json=as_json
        )


def _in_words(report: ReplayReport) -> str:
    words = report.outcome
    if report.violation is not UNSET:
        words = f"does not fit its journal: {report.violation.message}"
    elif report.error is not UNSET:
        words = f"failed: {report.error.type}: {report.error.message}"
    elif report.waiting_on is not UNSET:
        words = f"blocked, waiting on {', '.join(report.waiting_on) or 'nothing'}"
    if report.same_code is False:
        words += " (the code has changed since it was recorded)"
    return words
