"""The generated page about the journal."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidewheel.journal import status
from tidewheel.journal.document import CATEGORIES, FAMILIES, document
from tidewheel.journal.events import EVENT_TYPES, Category
from tidewheel.journal.public import HANDLERS, PUBLIC_TYPES
from tidewheel.journal.rules import RULES

PAGE = Path(__file__).resolve().parents[3] / "docs" / "journal.md"


@pytest.mark.skipif(not PAGE.exists(), reason="an unpacked sdist has no docs")
def test_the_page_is_up_to_date() -> None:
    """If this fails: python -m tidewheel.journal.document > docs/journal.md."""
    assert PAGE.read_text("utf-8") == document()


@pytest.mark.parametrize("name", EVENT_TYPES)
def test_every_event_has_a_section_with_its_fields(name: str) -> None:
    """Each field of each event is named."""
    section = document().partition(f"#### {name}\n")[2].partition("\n#")[0]

    assert all(f"| `{field}` |" in section for field in EVENT_TYPES[name].__struct_fields__)
    assert section.strip()


@pytest.mark.parametrize("phase", status.Phase)
def test_every_state_is_in_the_table_and_in_the_diagram(phase: status.Phase) -> None:
    """No phase is drawn without being explained, or the other way round."""
    diagram = document().partition("```mermaid\n")[2].partition("```")[0]

    assert f"--> {phase.value}" in diagram
    assert f"\n| {phase.value} | " in document()


def test_the_diagram_draws_the_table() -> None:
    """Every transition to another phase is an edge, a segment's opening is one per admission."""
    diagram = document().partition("```mermaid\n")[2].partition("```")[0]
    edges = [line.strip() for line in diagram.splitlines() if ": " in line]
    drawn = {(edge.partition(":")[0], name) for edge in edges for name in edge.partition(": ")[2].split(", ")}

    moves = {
        (f"{source.value} --> {target.value}", kind.__name__)
        for (source, kind), target in status.TRANSITIONS.items()
        if source is not target and kind.__name__ != "ExecutionStarted"
    }
    opens = {
        (f"{source.value} --> {target.value}", f"ExecutionStarted ({admission})")
        for source in (status.Phase.NEW, status.Phase.CONTINUED)
        for admission, target in status.OPENS_AS.items()
    }
    assert drawn == moves | opens


@pytest.mark.parametrize("rule_id", RULES)
def test_every_rule_is_listed_with_its_name_and_text(rule_id: str) -> None:
    """A breach names a rule by its id, which can be looked up here."""
    rule = RULES[rule_id]

    assert f"| {rule.id} | `{rule.name}` | {rule.text} |" in document()


def test_every_rule_belongs_to_a_listed_family() -> None:
    """A new family needs a title; a new category needs a sentence."""
    assert {rule_id.partition("-")[0] for rule_id in RULES} == set(FAMILIES)
    assert set(CATEGORIES) == set(Category)


def test_every_public_event_is_listed() -> None:
    """Both what is published and what publishes it."""
    section = document().partition("## Public events\n")[2]

    assert all(f"| `{name}` |" in section for name in PUBLIC_TYPES)
    assert all(f"| `{kind.__name__}` |" in section for kind in HANDLERS)
