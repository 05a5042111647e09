"""Who consumes which shard: a pure function of who is alive.

Nobody claims anything. Every projector says that it is alive and computes the same division from who else
does. While they see different members, a shard may have two consumers for a moment, or none; then an event
may come before the one it follows, and waits for it. So no result rests on the division, only who does the
work.
"""

from __future__ import annotations

from collections.abc import Sequence


def shards_of(member: str, members: Sequence[str], shards: int) -> frozenset[int]:
    """Return the shards of *member*: they are dealt out to the sorted *members* one after the other."""
    ordered = sorted(set(members) | {member})
    return frozenset(range(ordered.index(member), shards, len(ordered)))
