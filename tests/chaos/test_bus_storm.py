"""The event pipeline loses nothing and keeps the order while its processes and RabbitMQ are killed.

The long form of this is ``python -m tests.chaos.bus_main``.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import random
import uuid
from pathlib import Path

import pytest

from tests.chaos.arrivals import Heard
from tests.chaos.bus_checker import heard_findings
from tests.chaos.bus_plan import long_bus_plan, short_bus_plan
from tests.chaos.bus_storm import bus_weather
from tests.chaos.bus_verdict import bus_complaints, bus_shown
from tests.chaos.fleet import Servers

#: For who wants to see the same again.
SEED = "TIDEWHEEL_CHAOS_SEED"


@pytest.mark.timeout(600)
async def test_every_event_arrives_in_order_whatever_is_killed(servers: Servers, folder: Path) -> None:
    """After dedupe by id exactly what the journals publish; snapshots equal a rebuild; nothing is left."""
    seed = int(os.environ.get(SEED) or random.randrange(1_000_000))

    outcome = await bus_weather(short_bus_plan(seed), servers, folder, lambda _: None)

    wrong = list(bus_complaints(outcome))
    assert wrong == [], "\n".join([*wrong, f"{SEED}={seed}", bus_shown(outcome)])


async def test_runs_go_on_without_a_bus_and_what_is_owed_is_told_in_order(
    servers: Servers, folder: Path
) -> None:
    """Relays cannot reach it for five seconds, a minute in the long form; nobody does anything about it."""
    seed = random.randrange(1_000_000)
    plan = dataclasses.replace(short_bus_plan(seed), runs=20, troubles={}, outage_s=5.0, outage_runs_per_s=20)

    outcome = await bus_weather(plan, servers, folder, lambda _: None)

    wrong = list(bus_complaints(outcome))
    assert wrong == [], "\n".join([*wrong, bus_shown(outcome)])


def test_the_same_seed_plans_the_same_storm() -> None:
    """Every trouble of the plan is in it, in order, with runs before and after it."""
    plan = long_bus_plan(seed=3, runs=20_000, minutes=1.0, outage_s=60.0)

    planned = plan.schedule()

    assert planned == plan.schedule()
    assert len(planned) == sum(plan.troubles.values())
    assert [runs for runs, _ in planned] == sorted(runs for runs, _ in planned)
    assert 0 < planned[0][0] <= planned[-1][0] < plan.runs


RUN = "letter-000001"


def heard(run_seq: int, prev_seq: int | None, type_: str) -> Heard:
    """Return an event of the run as it was heard, under its right id."""
    key = hashlib.sha256(f"{RUN}|RUN|1|{type_}|".encode()).digest()
    return Heard(0.0, str(uuid.UUID(bytes=key[:16])), RUN, run_seq, prev_seq, type_, None, "1", "", None)


STARTED, ENDED = heard(0, None, "RunStarted"), heard(3, 0, "RunCompleted")


def test_what_was_heard_as_it_should_be_is_left_alone() -> None:
    """Exactly what the journal publishes, in its order."""
    assert list(heard_findings({RUN: [0, 3]}, {RUN: [STARTED, ENDED]})) == []


@pytest.mark.parametrize(
    ("rule", "came"),
    [
        ("every_event_arrives", [STARTED]),
        ("nothing_else_arrives", [STARTED, ENDED, heard(4, 3, "RunFailed")]),
        ("an_event_has_one_id", [STARTED, ENDED, ENDED._replace(event_id="-")]),
        ("events_come_in_order", [ENDED, STARTED]),
        ("events_are_chained", [STARTED, ENDED._replace(prev_seq=1)]),
        ("ids_are_made_of_keys", [STARTED, ENDED._replace(event_id="-")]),
    ],
)
def test_what_was_heard_wrongly_is_found(rule: str, came: list[Heard]) -> None:
    """Each way in which a consumer can be told something wrong has a rule that says so."""
    found = heard_findings({RUN: [0, 3]}, {RUN: came})

    assert rule in {finding.rule for finding in found}
