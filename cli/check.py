"""``tidewheel check``: what in an app's workflows would not replay."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from tidewheel.cli import apps, output
from tidewheel.cli.exit_codes import ExitCode
from tidewheel.sdk.lint import Finding, lint


def run(reference: str, *, strict: bool, as_json: bool) -> ExitCode:
    """Print one finding per line."""
    app = apps.load(reference, warn=False)  # what registration warns of is reported here
    workflows = app.workflows.values()
    # A function may be registered under two names.
    findings = [finding for workflow in workflows for finding in lint(workflow.fn)]
    for finding in findings:
        if as_json:
            output.emit_json(dataclasses.asdict(finding))
        else:
            output.emit(_in_words(finding))
    errors = sum(finding.level == "error" for finding in findings)
    if not as_json:
        counts = [(len(workflows), "workflow"), (errors, "error"), (len(findings) - errors, "warning")]
        listed = ", ".join(f"{count} {what}{'' if count == 1 else 's'}" for count, what in counts)
        output.say(f"{reference}: {listed}")
    return ExitCode.FINDING if errors or (strict and findings) else ExitCode.OK


def _in_words(finding: Finding) -> str:
    path = Path(finding.path)
    if path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    # The message ends with the hint.
    return f"{path}:{finding.line}:{finding.column}: {finding.level} {finding.rule}: {finding.message}"
