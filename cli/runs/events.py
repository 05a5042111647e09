"""``tidewheel run journal``: everything that happened to a run."""

from __future__ import annotations

import shutil

from tidewheel.cli import output
from tidewheel.cli.connecting import Where
from tidewheel.cli.exit_codes import ExitCode
from tidewheel.cli.recorded import Source
from tidewheel.cli.timeline.text import cut, plain
from tidewheel.journal.events import Entry
from tidewheel.journal.jsonform import dumps, to_json

#: Of output that no terminal shows.
WIDTH_ELSEWHERE = 160


def run(where: Where, run_id: str, *, as_json: bool) -> ExitCode:
    """Print the journal as JSON, or one line per event."""
    entries = Source(None, run_id, where).read()
    if as_json:
        output.emit(dumps(entries).decode().rstrip("\n"))
        return ExitCode.OK
    width = shutil.get_terminal_size((WIDTH_ELSEWHERE, 24)).columns
    names = max((len(type(entry.event).__name__) for entry in entries), default=0)
    for entry in entries:
        output.emit(cut(_line(entry, names), width))
    return ExitCode.OK


def _line(entry: Entry, names: int) -> str:
    (written,) = to_json([entry])
    at = "" if entry.at is None else f"{entry.at:%Y-%m-%d %H:%M:%S}.{entry.at.microsecond // 1000:03}Z"
    data = plain(output.one_line(written.get("data", {})))
    return f"{entry.run_seq:>5}  {at}  {written['type']:<{names}}  {data}"
