"""What a proxy does to bytes, as values that can be sent to it, and the search for bytes in a stream."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

#: From the client to the server, or back.
Direction: TypeAlias = Literal["up", "down"]
DIRECTIONS: tuple[Direction, Direction] = ("up", "down")

#: What Postgres answers to a COMMIT that it has made: CommandComplete.
COMMITTED = b"C\x00\x00\x00\x0bCOMMIT\x00"
#: What it answers to a statement that gives one row, as every call of our functions does.
ANSWERED = b"C\x00\x00\x00\x0dSELECT 1\x00"


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """How bytes fare in one direction.

    A connection that lost bytes to ``is_black`` stays black when that is over: its two ends would not
    understand each other any more, and nobody tells them.
    """

    delay_s: float = 0.0
    jitter_s: float = 0.0
    is_black: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Reset a connection where it carries ``pattern``.

    The first ``skip`` occurrences pass, counted over all connections; of the later ones one in ``every`` is
    fatal, with ``probability``, until ``cuts_max`` were made. ``is_delivered``: the pattern still arrives.
    """

    direction: Direction
    pattern: bytes
    skip: int = 0
    every: int = 1
    probability: float = 1.0
    cuts_max: int | None = None
    is_delivered: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return it as it travels to the proxy."""
        return asdict(self) | {"pattern": self.pattern.hex()}

    @classmethod
    def from_json(cls, given: dict[str, Any]) -> Cut:
        """Read what ``to_json`` wrote."""
        return cls(**given | {"pattern": bytes.fromhex(given["pattern"])})


class Shears:
    """A ``Cut`` at work, over all connections of one proxy."""

    def __init__(self, cut: Cut, chance: random.Random) -> None:
        self.cut = cut
        self._chance = chance
        self.seen = 0
        self.made = 0

    def falls(self) -> bool:
        """Note one more occurrence, and tell whether it is fatal."""
        self.seen += 1
        number = self.seen - self.cut.skip
        if number <= 0 or number % self.cut.every or self.made == self.cut.cuts_max:
            return False
        if self._chance.random() >= self.cut.probability:
            return False
        self.made += 1
        return True


class Seeker:
    """Looks for a pattern in one stream, whichever way the stream is broken into pieces."""

    def __init__(self, shears: Shears) -> None:
        self.shears = shears
        self._tail = b""

    def passed(self, piece: bytes) -> tuple[bytes, bool]:
        """Return what of *piece* may go on, and whether the connection ends there."""
        pattern = self.shears.cut.pattern
        known = len(self._tail)
        text = self._tail + piece
        at = text.find(pattern)
        searched = 0
        while at >= 0:
            searched = at + len(pattern)
            if self.shears.falls():
                end = searched if self.shears.cut.is_delivered else at
                return piece[: max(end - known, 0)], True
            at = text.find(pattern, searched)
        self._tail = text[max(searched, len(text) - len(pattern) + 1) :]
        return piece, False
