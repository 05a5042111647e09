"""Several workers, killed and started again at moments that nobody chose."""

from __future__ import annotations

import asyncio
import os
import random
import signal

from tests.faults.audit import body_findings, journal_findings, journals, rows
from tests.faults.place import Place, eventually, store_file
from tests.faults.shop import errands

RUNS, WORKERS = 6, 3
#: The bodies of one round of ``errands``.
BODIES = 5


async def test_runs_end_well_while_their_workers_are_killed(place: Place) -> None:
    """Every result comes, attempts are executed once, rows are there once, journals are whole."""
    chance = random.Random()
    kills = 80 if os.environ.get("TIDEWHEEL_CRASH_POINTS") == "all" else 8
    rounds = kills
    workers = [await place.serve(lease_s=3.0) for _ in range(WORKERS)]
    handles = [
        await place.client.start(errands, f"run{number}", rounds, run_id=f"run{number}")
        for number in range(RUNS)
    ]

    for _ in range(kills):
        await asyncio.sleep(chance.uniform(0.05, 0.5))
        victim = chance.choice(workers)
        victim.send(signal.SIGKILL)
        await victim.code()
        workers.remove(victim)
        workers.append(await place.serve(lease_s=3.0))
    results = [await handle.result(timeout=120) for handle in handles]

    file = store_file(place.folder)
    lines = place.ledger.lines()
    assert results == [rounds] * RUNS
    assert len({line.key for line in lines}) == RUNS * rounds * BODIES
    assert list(body_findings(journals(file), lines)) == []
    stored = {line.key for line in lines if "stored" in line.name}
    assert sorted(key for (key,) in rows(file, "SELECT key FROM shop_rows")) == sorted(stored)
    await eventually(lambda: not list(journal_findings(place.folder)), "a clean end")
