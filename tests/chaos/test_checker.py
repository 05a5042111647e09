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

from tests.chaos import checker, damages, effects, row_damages
from tests.chaos.checker import breaches, check, checked, rule_names
from tests.chaos.damage import DAMAGES, ERRAND, Damage
from tests.chaos.ledger import Line
from tests.chaos.specimen import STARTED, make_specimen
from tests.conformance.store.driving import Run
from tests.conformance.store.test_publishing import Life
from tests.servers.postgres import PrivatePostgres
from tidewheel.store.opening import open_store

CASES = [(rule, damage) for rule, known in DAMAGES.items() for damage in known]

#: Runs that go as chance has it.
LIVES = 12


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


def test_nothing_is_wrong_with_a_run_that_is_under_way_but_that_it_has_not_ended(specimen: Specimen) -> None:
    """Its step is open where the journal says so, and what it has published so far is marked and chained."""
    with psycopg.connect(specimen.url) as connection:
        row_damages.be_in_the_middle(connection)

        report = check(connection, STARTED, specimen.lines)

        connection.rollback()
    assert [(one.rule, one.run_id) for one in report.findings] == [("every_run_has_ended", ERRAND)]


async def test_nothing_is_wrong_with_runs_to_which_things_happen_by_chance(postgres: PrivatePostgres) -> None:
    """Keys that repeat, attempts that fail, steps that are parked or skipped, continue-as-new."""
    url = postgres.create_database("lives")
    store = await open_store(url, auto_migrate=True)
    for seed in range(LIVES):
        run = Run(store, f"r{seed}")
        await run.start(version="2" if seed % 2 else "")
        await Life(run, seed).live(moments=30)
    await store.close()

    assert breaches(url) == []


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

    assert {damages.__name__, row_damages.__name__} == {damage.__module__ for _, damage in CASES}
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
