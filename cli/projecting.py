"""``tidewheel projector rebuild``: snapshots made again from the journals."""

from __future__ import annotations

import asyncio

from tidewheel.cli import output
from tidewheel.cli.connecting import Where, stored
from tidewheel.cli.exit_codes import ExitCode
from tidewheel.cli.failure import Failure
from tidewheel.cli.live_line import LiveLine
from tidewheel.cli.timeline.text import counted
from tidewheel.projector.rebuilding import Rebuilt, rebuild


def run(where: Where, *, run_id: str | None, dry_run: bool, as_json: bool) -> ExitCode:
    """Rebuild what differs, and print how much that was."""
    found = asyncio.run(_rebuild(where, run_id=run_id, dry_run=dry_run, as_json=as_json))
    if run_id is not None and found.gone:
        message = f"there is no run {run_id!r}"
        raise Failure(message, code=ExitCode.NOT_FOUND, kind="NotFound", advice="see `tidewheel run list`")
    if as_json:
        output.emit_json(output.plain(found))
    else:
        output.emit(_said(found))
        for name in found.unreadable_runs:
            output.warn(f"the journal of run {name} cannot be read", as_json=False)
    is_finding = found.unreadable or (dry_run and found.written)
    return ExitCode.FINDING if is_finding else ExitCode.OK


async def _rebuild(where: Where, *, run_id: str | None, dry_run: bool, as_json: bool) -> Rebuilt:
    async with stored(where) as (store, namespace):
        with LiveLine(wanted=not as_json) as line:
            return await rebuild(
                store,
                namespace,
                run_id=run_id,
                dry_run=dry_run,
                progress=lambda found: line.show(_said(found)),
            )


def _said(found: Rebuilt) -> str:
    written = "would be written" if found.dry_run else "written"
    text = f"{counted(found.runs, 'run')} compared: {found.level} level, {found.written} {written}"
    if found.gone:
        text += f", {found.gone} gone meanwhile"
    if found.unreadable:
        text += f", {found.unreadable} that cannot be read"
    return text
