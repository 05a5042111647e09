"""Every rule is tried on the journals of ``corpus``, and on bytes that are no journal at all."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tidewheel.journal import jsonform
from tidewheel.journal.rules import RULES
from tidewheel.journal.verify import Breach, verify, verify_bytes

CORPUS = Path(__file__).parent / "corpus"
BROKEN_MIN = 2
#: The fields that the bare words of a line fill; other events have a ``promise_id``.
WORDS = {
    "ExecutionStarted": ("admission",),
    "JoinSetCreated": ("join_set_id",),
    "JoinSetSubmitted": ("join_set_id", "promise_id"),
    "JoinSetAwaited": ("join_set_id", "promise_id"),
    "SignalDelivered": ("signal_name",),
    "SignalReceived": ("promise_id", "signal_name"),
    "SignalAccepted": ("signal_id",),
    "SignalRejected": ("signal_id",),
    "StateSet": ("key",),
    "StateCleared": ("key",),
    "ExecutionAwaiting": ("kind",),
}
#: The field that ``#`` fills; other events have an ``attempt``.
NUMBERS = {
    "InvokeRetrying": "failed_attempt",
    "SignalDelivered": "delivery_id",
    "SignalReceived": "delivery_id",
}
NEEDS_RESULT = {"InvokeCompleted", "StepSkipped", "PromiseResolved"}


@dataclass
class Case:
    """A journal of the corpus, and the breaches that it has."""

    rule: str
    broken: bool
    title: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    expected: list[tuple[str, int | None]] = field(default_factory=list)

    @property
    def data(self) -> bytes:
        """The journal as ``journal verify --file`` would read it."""
        return json.dumps(self.rows).encode()


def _row(line: str, count: int) -> dict[str, Any]:
    words = line.split()
    number = int(words.pop(0)[1:]) if line.startswith("@") else count
    kind = words.pop(0)
    data: dict[str, Any] = {"result": {"ok": None}} if kind in NEEDS_RESULT else {}
    if kind == "ExecutionAwaiting":
        data["waiting_on"] = []
    names = list(WORDS.get(kind, ("promise_id",)))
    for word in words:
        name, equals, value = word.partition("=")
        if equals:
            data[name] = json.loads(value)
        elif word.startswith("#"):
            data[NUMBERS.get(kind, "attempt")] = int(word[1:])
        elif names:
            data[names.pop(0)] = word
        else:
            data["waiting_on"].append(word)
    return {"run_seq": number, "type": kind, "data": data}


def _cases(path: Path) -> list[Case]:
    cases: list[Case] = []
    section = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        heading = re.fullmatch(r"(ok|broken): (.+)", line)
        if line.startswith("== "):
            section = line.split()[1]
        elif heading is not None:
            cases.append(Case(section, heading[1] == "broken", heading[2]))
        elif line.startswith("  "):
            case = cases[-1]
            event, _, marks = line.partition("!!")
            if event.strip() != "(nothing)":
                case.rows.append(_row(event.strip(), case.rows[-1]["run_seq"] + 1 if case.rows else 0))
            at = case.rows[-1]["run_seq"] if case.rows else None
            case.expected.extend((rule, at) for rule in marks.split())
    return cases


CASES = [case for path in sorted(CORPUS.glob("*.journal")) for case in _cases(path)]


def _found(breaches: list[Breach]) -> list[tuple[str, int | None]]:
    return [(breach.rule, breach.run_seq) for breach in breaches]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule}: {case.title}")
def test_a_journal_has_exactly_the_breaches_that_are_marked(case: Case) -> None:
    """Every breach is reported, at the event where the rule fails, and nothing else is."""
    breaches = verify_bytes(case.data)

    assert Counter(_found(breaches)) == Counter(case.expected)
    assert case.broken == bool(case.expected)
    assert verify(jsonform.loads(case.data)) == breaches


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule}: {case.title}")
def test_a_rule_alone_finds_what_it_finds_among_all(case: Case) -> None:
    """A rule depends neither on other rules nor on being given only the events it reads."""
    entries = jsonform.loads(case.data)

    alone = [breach for rule in RULES.values() for breach in rule(entries)]

    assert Counter(alone) == Counter(verify(entries))


@pytest.mark.parametrize("rule_id", RULES)
def test_every_rule_has_its_cases(rule_id: str) -> None:
    """A rule cannot be registered without journals that keep it and journals that break it."""
    own = [case for case in CASES if case.rule == rule_id]

    assert any(not case.broken for case in own)
    assert sum(rule_id in dict(case.expected) for case in own if case.broken) >= BROKEN_MIN


def test_headings_of_the_corpus_name_the_rules() -> None:
    """A section's heading is the rule's id and name."""
    lines = [
        line for path in CORPUS.glob("*.journal") for line in path.read_text(encoding="utf-8").splitlines()
    ]

    named = [tuple(line.split()[1:]) for line in lines if line.startswith("== ") and "-" in line]

    assert Counter(named) == Counter((rule.id, rule.name) for rule in RULES.values())


def test_breaches_are_sorted_by_place_and_then_by_rule() -> None:
    """A reader sees the first thing that went wrong first; families keep their order."""
    case = next(case for case in CASES if case.title == "no start, a hole, and a signal from nowhere")

    breaches = verify_bytes(case.data)

    assert [(b.run_seq, b.rule) for b in breaches[:4]] == [(0, "S-2"), (0, "CF-2"), (3, "S-1"), (3, "CF-1")]


def test_a_breach_is_printed_with_three_fields() -> None:
    """This is one line of ``journal verify``."""
    (breach,) = verify_bytes(b"[]")

    assert breach.to_json() == {
        "rule": "S-2",
        "run_seq": None,
        "message": "the journal is empty, expected ExecutionStarted",
    }


def test_every_message_says_something() -> None:
    """No message is empty, and none shows a decoder's notation."""
    messages = [breach.message for case in CASES for breach in verify_bytes(case.data)]

    assert messages
    assert not [text for text in messages if not text or "`" in text or "regex" in text]
