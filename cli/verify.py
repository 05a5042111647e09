"""``tidewheel journal verify``: every breach of the rules of a journal."""

from __future__ import annotations

import msgspec

from tidewheel.cli import files, output
from tidewheel.cli.exit_codes import ExitCode
from tidewheel.journal.verify import verify_bytes


def run(file: str, *, as_json: bool) -> ExitCode:
    """Print one breach per line."""
    data = files.read_bytes(file)
    breaches = verify_bytes(data)
    for breach in breaches:
        output.emit_json(breach.to_json())
    if not as_json:
        output.say(f"{files.shown(file)}: {_summary(data, len(breaches))}")
    return ExitCode.FINDING if breaches else ExitCode.OK


def _summary(data: bytes, breaches: int) -> str:
    if breaches:
        return "1 breach" if breaches == 1 else f"{breaches} breaches"
    events = len(msgspec.json.decode(data, type=list[msgspec.Raw]))
    return f"{events} event{'' if events == 1 else 's'}, valid"
