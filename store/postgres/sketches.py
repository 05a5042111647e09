"""A run as its start left it, small enough to go with the hint for it.

The worker that gets the hint begins with it instead of loading the run. Nothing is taken on trust: what the
worker appends is written only if the run's row still has its first revision (``memory``). If it does not, as
where another worker was faster, the run is loaded as if there had been no sketch.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tidewheel.journal.codec import decode
from tidewheel.journal.errors import TidewheelError
from tidewheel.journal.events import Entry
from tidewheel.store.protocol import Loaded
from tidewheel.store.records import Passage, RunRecord

#: The revision of a run that was just started.
FIRST_REVISION: Final = 0
#: A larger one is left out: a message is no place for large inputs.
SKETCH_MAX: Final = 8 * 1024


class Sketch(msgspec.Struct, array_like=True, frozen=True):
    """The run's row, and its first events as they were stored."""

    run: RunRecord
    events: msgspec.Raw


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Sketch).decode


def sketch_of(run: RunRecord, passage: Passage) -> bytes | None:
    """Return the sketch of a run that was just started, as JSON; None if it would be large, or no JSON."""
    if len(passage.data) > SKETCH_MAX:
        return None
    try:
        return _encode(Sketch(run, msgspec.Raw(passage.data)))
    except UnicodeEncodeError:  # half a character, which a column has room for in its way
        return None


def read_sketch(data: bytes) -> Loaded | None:
    """Return the run as an activation needs it, as of its start.

    None if it cannot be read: it is of another release, which has other fields.
    """
    try:
        sketch = _decode(data)
        events = decode(bytes(sketch.events))
    except (msgspec.MsgspecError, ValueError, TidewheelError):
        return None
    run = sketch.run
    return Loaded(
        run=run,
        entries=[Entry(seq, run.created_at, event) for seq, event in enumerate(events)],
        steps=[],
        timers=[],
        alive=frozenset(),
        now=run.created_at,
    )
