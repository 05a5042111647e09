"""Generated programs, run under many orders of arrival, cut after every event and replayed."""

from __future__ import annotations

import logging
import os
import random
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.property.mutants import all_results_at_once, numbered_in_finish_order
from tests.property.programs import generate
from tests.property.shell import Diverged, Maker, Shell, reenact
from tidewheel.journal import events as ev
from tidewheel.journal.verify import verify

PROGRAMS = int(os.environ.get("TIDEWHEEL_PROGRAMS", "600"))
ORDERS = 4
BATCHES = 12
DEEP_PROGRAMS = PROGRAMS // 2


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Branches of generated programs fail unobserved all the time, and say so."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_a_run_cut_after_any_event_goes_on_to_the_same_journal(batch: int) -> None:
    """Same commands, same ids, same results: cold after every event, and kept from there on."""
    for seed in range(batch, PROGRAMS, BATCHES):
        program = generate(random.Random(seed), depth=3)
        for order in range(ORDERS):
            shell = Shell(program, seed * 1_000 + order)
            journal = shell.play()
            for cut in set(range(1, len(journal))) - shell.uncuttable:
                reenact(journal, cut)
            reenact(journal, 1, cold_always=True)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_every_journal_keeps_every_rule_at_every_length(batch: int) -> None:
    """What the core writes is valid after each event, however deep the program nests."""
    for seed in range(batch, DEEP_PROGRAMS, BATCHES):
        journal = Shell(generate(random.Random(seed), depth=5), seed).play()
        assert verify(journal) == []

        shortened = journal[: random.Random(seed).randrange(1, len(journal))]
        assert verify(shortened) == []


def test_the_generated_programs_reach_every_verb_and_every_ending() -> None:
    """A generator that never made a join set or a cancel would prove nothing about them."""
    written: Counter[str] = Counter()
    for seed in range(200):
        journal = Shell(generate(random.Random(seed), depth=4), seed).play()
        written.update(type(entry.event).__name__ for entry in journal)

    outside = {"StepSkipped", "Recorded"} | {
        name for name, kind in ev.EVENT_TYPES.items() if kind.category is ev.Category.GOVERNANCE
    }
    assert set(ev.EVENT_TYPES) - outside - set(written) == set()


@pytest.mark.parametrize("mutant", [all_results_at_once, numbered_in_finish_order])
def test_a_planted_bug_is_caught(mutant: Maker) -> None:
    """All results handed back at once, and ids in finish order, are told from the real thing."""
    caught = 0
    for seed in range(60):
        shell = Shell(generate(random.Random(seed), depth=3), seed)
        journal = shell.play()
        try:
            for cut in set(range(1, len(journal))) - shell.uncuttable:
                reenact(journal, cut, maker=mutant)
        except Diverged:
            caught += 1

    assert caught > 0
