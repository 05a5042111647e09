"""Judge a journal by all rules at once.

``verify`` takes entries, ``verify_bytes`` any bytes at all: it answers with breaches and
never raises. What cannot be read is a breach of the rule ``FORMAT``, and the rest of
the journal is judged all the same. Each rule is dealt only the events it reads, so
the work grows with the journal, not with journal times rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidewheel.journal import jsonform
from tidewheel.journal.rules import RULES
from tidewheel.journal.rules.registry import Breach, Rule, living, split

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tidewheel.journal.events import Entry, Event

__all__ = ["FORMAT", "Breach", "verify", "verify_bytes"]

FORMAT = "FORMAT"
_ORDER = {rule_id: number for number, rule_id in enumerate((FORMAT, *RULES))}


class _Table:
    """The rules of one scope: which of them read which event, and which read all."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        listed = list(rules)
        self.whole = [rule for rule in listed if not rule.reads]
        self.dealt = [rule for rule in listed if rule.reads]
        self.readers: dict[type[Event], list[int]] = {}
        for number, rule in enumerate(self.dealt):
            for kind in rule.reads:
                self.readers.setdefault(kind, []).append(number)

    def judge(self, entries: Sequence[Entry]) -> Iterator[Breach]:
        """Deal *entries* to the rules and yield what they find."""
        for rule in self.whole:
            yield from _found(rule, entries)
        hands: list[list[Entry]] = [[] for _ in self.dealt]
        for entry in entries:
            for number in self.readers.get(type(entry.event), ()):
                hands[number].append(entry)
        for rule, hand in zip(self.dealt, hands, strict=True):
            if hand:
                yield from _found(rule, hand)


_SEGMENT_BASE = _Table(rule for rule in RULES.values() if rule.base and not rule.run_wide)
_SEGMENT_ADDED = _Table(rule for rule in RULES.values() if not rule.base and not rule.run_wide)
_RUN_BASE = _Table(rule for rule in RULES.values() if rule.base and rule.run_wide)
_RUN_ADDED = _Table(rule for rule in RULES.values() if not rule.base and rule.run_wide)


def verify(entries: Sequence[Entry]) -> list[Breach]:
    """Return every breach of every rule, by ``run_seq`` and then by rule."""
    breaches = list(_RUN_BASE.judge(entries))
    alive: list[Entry] = []
    for segment in split(entries):
        life = living(segment)
        alive.extend(life)
        breaches.extend(_SEGMENT_BASE.judge(segment))
        breaches.extend(_SEGMENT_ADDED.judge(life))
    breaches.extend(_RUN_ADDED.judge(alive))
    return sorted(breaches, key=_place)


def verify_bytes(data: bytes) -> list[Breach]:
    """Return every breach of a journal in its JSON form; any bytes have an answer."""
    entries, problems = jsonform.read(data)
    unread = [Breach(FORMAT, problem.run_seq, problem.message) for problem in problems]
    if unread and not entries:
        return unread
    try:
        return sorted([*unread, *verify(entries)], key=_place)
    except RecursionError:
        return [Breach(FORMAT, None, "the journal is nested too deeply to be compared")]


def _found(rule: Rule, entries: Sequence[Entry]) -> Iterator[Breach]:
    for entry, message in rule.check(entries):
        yield Breach(rule.id, None if entry is None else entry.run_seq, message)


def _place(breach: Breach) -> tuple[int, int]:
    return (-1 if breach.run_seq is None else breach.run_seq, _ORDER[breach.rule])
