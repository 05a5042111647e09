"""``tidewheel projector rebuild --projection``: the table of a projection filled again from the journals."""

from __future__ import annotations

import asyncio

from tidewheel.cli import apps, output
from tidewheel.cli.connecting import Where, stored
from tidewheel.cli.exit_codes import ExitCode
from tidewheel.cli.failure import Failure
from tidewheel.cli.live_line import LiveLine
from tidewheel.cli.timeline.text import counted
from tidewheel.projector.rebuilding_projections import ProjectedAgain, project_again
from tidewheel.sdk.projections import ProjectionDefinition


def run(where: Where, reference: str, name: str, *, dry_run: bool, as_json: bool) -> ExitCode:
    """Empty the table and fill it, and print from how many runs."""
    definition = _definition(reference, name, warn=not as_json)
    found = asyncio.run(_project_again(where, definition, dry_run=dry_run, as_json=as_json))
    if as_json:
        output.emit_json(output.plain(found))
    else:
        output.emit(_said(found))
        for run_id, reason in found.failures.items():
            output.warn(f"run {run_id} was not read to its end: {reason}", as_json=False)
    return ExitCode.FINDING if found.failed else ExitCode.OK


def _definition(reference: str, name: str, *, warn: bool) -> ProjectionDefinition:
    app = apps.load(reference, warn=warn)
    definition = app.projections.get(name)
    if definition is None:
        known = ", ".join(sorted(app.projections)) or "none"
        raise Failure(
            f"app {app.name!r} has no projection {name!r}",
            code=ExitCode.NOT_FOUND,
            kind="NotFound",
            advice=f"it has: {known}",
        )
    return definition


async def _project_again(
    where: Where, definition: ProjectionDefinition, *, dry_run: bool, as_json: bool
) -> ProjectedAgain:
    async with stored(where) as (store, namespace):
        with LiveLine(wanted=not as_json) as line:
            return await project_again(
                store,
                definition,
                namespace,
                dry_run=dry_run,
                progress=lambda found: line.show(_said(found)),
            )


def _said(found: ProjectedAgain) -> str:
    read = "would be read" if found.dry_run else "read"
    text = f"projection {found.projection!r}: {counted(found.runs, 'run')} {read}"
    if found.failed:
        text += f", {found.failed} of them not to the end"
    return text
