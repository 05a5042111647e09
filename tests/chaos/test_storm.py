"""Runs go on while workers die at every point, servers crash and networks are reset.

The long form of this is ``python -m tests.chaos``.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.chaos.fleet import Servers
from tests.chaos.plan import short_plan
from tests.chaos.storm import weather
from tests.chaos.verdict import complaints, shown

#: For who wants to see the same again.
SEED = "TIDEWHEEL_CHAOS_SEED"


@pytest.mark.timeout(600)
async def test_runs_end_well_whatever_happens(servers: Servers, folder: Path) -> None:
    """None is lost, stuck or doubled; every journal is whole; every point was died at."""
    seed = int(os.environ.get(SEED) or random.randrange(1_000_000))

    outcome = await weather(short_plan(seed), servers, folder, lambda _: None)

    wrong = list(complaints(outcome))
    assert wrong == [], "\n".join([*wrong, f"{SEED}={seed}", shown(outcome)])
