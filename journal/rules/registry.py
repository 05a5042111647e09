"""What a rule is, and how it becomes one of the list.

A rule is one invariant of a journal with an id, a name and a text: its function's
name and docstring. It is pure: entries in, breaches out, each at the event where
the rule fails. A rule stands alone; none looks at what another found.

Rules hold within a *segment*: a journal is split after each ``ExecutionContinued``.
A rule marked ``run_wide`` sees all segments at once. The rules of the journal's
first description are *base* rules and judge every event. Added rules judge a
segment up to its first terminal event: what follows is S-4's to report.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec

from tidewheel.journal.events import TERMINAL, Entry, Event, ExecutionContinued

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

#: Where a rule fails and why; the entry is ``None`` for an empty journal.
Found: TypeAlias = tuple[Entry | None, str]
#: How many rules of each family are base rules.
BASE = {"S": 5, "SE": 4, "CF": 4, "JS": 7, "GV": 0}
#: What ends a segment. Look up ``type(event)`` here: ``isinstance`` is slow where a struct does not match.
CLOSING: frozenset[type[Event]] = frozenset({*TERMINAL, ExecutionContinued})


class Check(Protocol):
    """The function of a rule: takes entries in order, finds what breaks the rule."""

    __name__: str

    def __call__(self, entries: Sequence[Entry], /) -> Iterator[Found]:
        """Yield every entry where the rule fails."""


class Breach(msgspec.Struct, frozen=True):
    """A rule failed at this event; ``run_seq`` is ``None`` where no event can be named."""

    rule: str
    run_seq: int | None
    message: str

    def to_json(self) -> dict[str, str | int | None]:
        """Return the breach as ``journal verify`` prints it."""
        return {"rule": self.rule, "run_seq": self.run_seq, "message": self.message}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One invariant; ``reads`` names the events it looks at, none meaning all."""

    id: str
    name: str
    text: str
    reads: frozenset[type[Event]]
    run_wide: bool
    base: bool
    check: Check

    def __call__(self, entries: Sequence[Entry]) -> Iterator[Breach]:
        """Yield every breach of this rule in a whole journal."""
        for part in self._parts(entries):
            for entry, message in self.check(part):
                yield Breach(self.id, None if entry is None else entry.run_seq, message)

    def _parts(self, entries: Sequence[Entry]) -> list[Sequence[Entry]]:
        if self.base:
            return [entries] if self.run_wide else split(entries)
        lives = [living(segment) for segment in split(entries)]
        return [[entry for life in lives for entry in life]] if self.run_wide else lives


_registered: dict[str, Rule] = {}


def rule(rule_id: str, *reads: type[Event], run_wide: bool = False) -> Callable[[Check], Rule]:
    """Register a function as the rule *rule_id*; without *reads* it is given every event."""
    family, _, number = rule_id.partition("-")
    assert rule_id not in _registered, f"{rule_id} is registered twice"

    def register(check: Check) -> Rule:
        text = " ".join((check.__doc__ or "").split())
        assert text, f"{rule_id} has no text"
        made = Rule(
            id=rule_id,
            name=check.__name__,
            text=text,
            reads=frozenset(reads),
            run_wide=run_wide,
            base=int(number) <= BASE[family],
            check=check,
        )
        _registered[rule_id] = made
        return made

    return register


def in_order() -> dict[str, Rule]:
    """Return all registered rules, family by family; their numbers have no holes."""
    count = {family: sum(key.startswith(f"{family}-") for key in _registered) for family in BASE}
    return {key: _registered[key] for key in (f"{f}-{n + 1}" for f in BASE for n in range(count[f]))}


def split(entries: Sequence[Entry]) -> list[Sequence[Entry]]:
    """Return the journal's segments; an empty journal is one empty segment."""
    ends = [index + 1 for index, entry in enumerate(entries) if type(entry.event) is ExecutionContinued]
    if not ends or ends[-1] != len(entries):
        ends.append(len(entries))
    if len(ends) == 1:
        return [entries]
    return [entries[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def living(segment: Sequence[Entry]) -> Sequence[Entry]:
    """Return the segment up to and with its first terminal event."""
    for index, entry in enumerate(segment):
        if type(entry.event) in CLOSING:
            return segment if index + 1 == len(segment) else segment[: index + 1]
    return segment
