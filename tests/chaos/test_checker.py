"""The checker says nothing of a good database, and notices every kind of damage."""

from __future__ import annotations

import ast
import asyncio
import inspect
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest

from tests.chaos import checker, damages, effects
from tests.chaos.checker import check, checked, rule_names
from tests.chaos.damage import DAMAGES, Damage
from tests.chaos.ledger import Line
from tests.chaos.specimen import STARTED, make_specimen
from tests.servers.postgres import PrivatePostgres

CASES = [(rule, damage) for rule, known in DAMAGES.items() for damage in known]


class Specimen(NamedTuple):
    """A good database, and the effects of its runs."""

    url: str
    lines: list[Line]


@pytest.fixture(scope="module")
def specimen(postgres: PrivatePostgres, tmp_path_factory: pytest.TempPathFactory) -> Specimen:
    """A good database that the tests of this module share; whoever damages it rolls that back."""
    url = postgres.create_database("specimen")
    return Specimen(url, asyncio.run(make_specimen(tmp_path_factory.mktemp("specimen"), url)))


def test_nothing_is_wrong_with_a_good_database(specimen: Specimen) -> None:
    """No rule speaks up, and everything was looked at."""
    report = checked(specimen.url, STARTED, specimen.lines)

    assert report.findings == []
    assert (report.runs, report.executions) == (4, 11)
    assert report.events > 70


def test_repetitions_are_counted(specimen: Specimen) -> None:
    """A body that was executed again before its completion is no breach, but it is told."""
    again = specimen.lines[0]._replace(attempt=0)

    report = checked(specimen.url, STARTED, [again, *specimen.lines])

    assert report.findings == []
    assert report.repeated == {"price": 1}


@pytest.mark.parametrize(("rule", "damage"), CASES, ids=[damage.__name__ for _, damage in CASES])
def test_damage_is_noticed(specimen: Specimen, rule: str, damage: Damage) -> None:
    """By the rule that is about it, whatever else is noticed too."""
    with psycopg.connect(specimen.url) as connection:
        lines = damage(connection, list(specimen.lines))

        report = check(connection, STARTED, lines)

        connection.rollback()
    assert rule in {finding.rule for finding in report.findings}, [str(one) for one in report.findings]


def test_every_rule_was_tried() -> None:
    """A rule for which there is no damage may be one that cannot notice anything."""
    spoken = {
        node.args[0].value
        for module in (checker, effects)
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "Finding"
        and isinstance(node.args[0], ast.Constant)
    }

    assert damages.__name__ in {damage.__module__ for _, damage in CASES}
    assert spoken | set(rule_names()) == DAMAGES.keys()


def test_the_checker_shares_nothing_with_the_engine() -> None:
    """Importing it imports nothing of the product, directly or by way of others."""
    program = (
        "import sys, tests.chaos.checker\n"
        "print([name for name in sys.modules if name.partition('.')[0] == 'tidewheel'])"
    )

    answer = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        check=True,
    )

    assert answer.stdout.strip() == "[]"
