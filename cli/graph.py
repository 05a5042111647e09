"""``tidewheel graph``: a recorded run as a chart."""

from __future__ import annotations

from tidewheel.cli import apps, output
from tidewheel.cli.exit_codes import ExitCode
from tidewheel.cli.recorded import Source
from tidewheel.cli.replay import recorded_workflow
from tidewheel.journal.graph import mermaid


def run(reference: str | None, source: Source, chart_format: str, *, as_json: bool) -> ExitCode:
    """Print the chart; an app that is named must have the journal's workflow."""
    entries = source.read()
    recorded = recorded_workflow(entries)
    if reference is not None:
        apps.workflow_of(apps.load(reference, warn=not as_json), recorded, None)
    chart = mermaid(entries)
    if as_json:
        output.emit_json({"format": chart_format, "graph": chart})
    else:
        output.emit(chart.removesuffix("\n"))
    return ExitCode.OK
