"""How much work a store did. Tests assert it, since times differ from machine to machine."""

from __future__ import annotations

import msgspec


class Counters(msgspec.Struct):
    """What was done since the store was opened."""

    #: Calls that went to where the data is and came back.
    round_trips: int = 0
    #: Transactions that wrote and were committed.
    commits: int = 0
    events_read: int = 0
    events_written: int = 0
