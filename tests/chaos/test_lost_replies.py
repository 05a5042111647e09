"""COMMITs whose reply is cut: nothing is written twice, and nobody is told that nothing was (31)."""

from __future__ import annotations

import asyncio

import pytest

from tests.chaos.corner import called, one
from tests.chaos.fleet import Fleet
from tests.chaos.forms import either
from tests.chaos.storm import client_of
from tests.chaos.weather import ANSWERED, COMMITTED, Cut
from tidewheel.sdk.client import Client

#: Any of the replies may be cut, but not so many that all repetitions of one write are likely to be: those to
#: a COMMIT, and those to calls of our functions, some of which are transactions by themselves.
CUTS = {
    "commits": Cut(direction="down", pattern=COMMITTED, probability=0.1),
    "calls": Cut(direction="down", pattern=ANSWERED, probability=0.1),
}
#: Callers at a time.
CALLERS = 5


async def test_a_write_whose_reply_is_cut_is_made_once(fleet: Fleet) -> None:
    """Starts and signals of a client: each call succeeds, and each is in the journal once."""
    cuts = either(100, 1_000)
    network = fleet.networks["postgres"]
    sent: dict[str, int] = {}

    async def call(client: Client, caller: int) -> None:
        handle = await client.start(called, run_id=f"run-{caller}")
        while (await network.counts())["cuts"] < cuts:
            number = sent.get(handle.run_id, 0)
            await handle.signal("call", number)
            sent[handle.run_id] = number + 1

    async with client_of([fleet.urls[0], fleet.direct[1]]) as client:
        await network.cut(CUTS["commits"])
        await asyncio.gather(*(call(client, caller) for caller in range(CALLERS)))
        made = (await network.counts())["cuts"]
        await network.mend()

    payloads = fleet.events(
        "SELECT r.run_id, (data ->> 'payload')::int"
        " FROM events JOIN tidewheel_runs AS r USING (run_key) WHERE type = 'SignalDelivered'"
    )
    assert made >= cuts
    assert sorted(payloads) == sorted((run_id, number) for run_id in sent for number in range(sent[run_id]))
    assert [breach for breach in fleet.breaches() if not breach.startswith("every_run_has_ended")] == []


@pytest.mark.parametrize("what", CUTS)
async def test_runs_end_well_while_the_replies_to_their_workers_are_cut(
    fleet: Fleet, client: Client, what: str
) -> None:
    """No step is executed twice for it: whoever wrote the result finds out that it is there."""
    cuts = either(40, 400)
    await fleet.serve_ready(**({"remembered": 0} if what == "commits" else {}))
    network = fleet.networks["postgres"]
    await network.cut(CUTS[what])
    number = 0

    while (await network.counts())["cuts"] < cuts:
        names = [f"run-{number}-{place}" for place in range(10)]
        handles = [await client.start(one, name, run_id=name) for name in names]
        assert [await handle.result(timeout=60) for handle in handles] == names
        number += 1
    await network.mend()

    lines = fleet.ledger.lines()
    assert fleet.breaches() == []
    assert len(lines) == 10 * number == len({line.key for line in lines})


@pytest.mark.parametrize("pattern", [COMMITTED, ANSWERED], ids=["commits", "calls"])
async def test_a_start_whose_reply_is_cut_again_and_again_is_found(fleet: Fleet, pattern: bytes) -> None:
    """Five times in a row: the caller gets its run in the end, which was started once.

    The first start tells the client the time, without which a write that asks nothing is not tried.
    """
    network = fleet.networks["postgres"]

    async with client_of([fleet.urls[0], fleet.direct[1]]) as client:
        await client.start(one, "first", run_id="first")
        await network.cut(Cut(direction="down", pattern=pattern, cuts_max=5))
        handle = await client.start(one, "only", run_id="only")
        await network.mend()

    assert handle.mismatch is False
    assert fleet.rows("SELECT run_id, last_seq FROM tidewheel_runs WHERE run_id = 'only'") == [("only", 0)]
