"""A Postgres server that cannot be used for a while: bounded waiting, a word in the log, and on by itself."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest

from tests.chaos.corner import BULK, bulky, one, patient
from tests.chaos.fleet import Fleet, Servers, fleet_on
from tests.chaos.forms import long_form
from tests.chaos.postgres_troubles import (
    Trouble,
    crowded,
    full,
    locked_runs,
    locked_table,
    move_to,
    read_only,
    small_disk,
    user_url,
)
from tests.chaos.storm import client_of
from tests.chaos.weather import Weather
from tests.faults.place import eventually
from tests.servers.postgres import PrivatePostgres
from tests.servers.rabbitmq import PrivateRabbit
from tidewheel.sdk.client import Client
from tidewheel.store.errors import CommitUnknown, StoreUnavailable

#: What a worker says of a result that it cannot write, and of one of which it cannot know.
WAITS = "waits for the store"
ASKS_AGAIN = "a commit's reply was lost, asking again"
#: The store may take so long over a result before its attempt fails.
PATIENT_MS = 60_000
#: Nobody who asks the store for something waits longer than this for an answer, good or bad.
BOUND_S = 15.0


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        (locked_table, "waited too long for a lock"),
        (locked_runs, "waited too long for a lock"),
        (read_only, "is read-only"),
        (crowded, "too many connections"),
    ],
    ids=["34 ACCESS EXCLUSIVE", "38 an idle transaction", "39 read-only", "36 too many connections"],
)
async def test_a_result_is_kept_until_postgres_can_be_written(
    fleet: Fleet, client: Client, trouble: Trouble, reason: str
) -> None:
    """The worker says what is the matter, and goes on when it is over; nothing is executed again."""
    worker = await fleet.serve_ready(urls=[user_url(fleet), fleet.urls[1]], budget_ms=PATIENT_MS)
    handle = await client.start(patient, "held", run_id="held")
    await eventually(lambda: len(fleet.ledger.lines()) == 1, "the step's start")

    with trouble(fleet):
        fleet.let("held")
        await eventually(lambda: reason in worker.said(), f"the word {reason!r} of the worker")
        # Where its connection was ended while it wrote, it first asks what became of that.
        await eventually(lambda: WAITS in worker.said(), f"the word {WAITS!r} of the worker")

    assert await handle.result(timeout=30) == "after held"
    assert [line.attempt for line in fleet.ledger.lines()] == [1, 1]
    assert fleet.breaches() == []


@long_form
async def test_a_result_is_kept_while_nothing_reaches_postgres_or_comes_back(
    fleet: Fleet, client: Client
) -> None:
    """Every exchange is given up on in the end, and so is its connection; the next one goes through (17)."""
    worker = await fleet.serve_ready(lease_s=60.0, budget_ms=PATIENT_MS)
    handle = await client.start(patient, "held", run_id="held")
    await eventually(lambda: len(fleet.ledger.lines()) == 1, "the step's start")
    network = fleet.networks["postgres"]

    await network.weather(Weather(is_black=True))
    fleet.let("held")
    # It was sent, and may have arrived: the worker asks until it knows.
    await eventually(lambda: ASKS_AGAIN in worker.said(), "the worker's word")
    await network.mend()

    assert await handle.result(timeout=60) == "after held"
    assert [line.attempt for line in fleet.ledger.lines()] == [1, 1]
    assert fleet.breaches() == []


@pytest.mark.parametrize("trouble", [locked_table, read_only], ids=lambda trouble: trouble.__name__)
async def test_a_caller_is_told_in_time_and_succeeds_when_it_asks_again(
    fleet: Fleet, trouble: Trouble
) -> None:
    """Nobody waits without a bound, and an error says truly that nothing was written."""
    async with client_of(fleet.direct) as client:
        with trouble(fleet):
            began = time.monotonic()
            with pytest.raises((StoreUnavailable, CommitUnknown)):
                await client.start(one, "late", run_id="late")
            took_s = time.monotonic() - began
        handle = await client.start(one, "late", run_id="late")

    assert took_s < BOUND_S
    assert handle.existed is False


async def test_a_transaction_that_holds_one_run_does_not_hold_up_the_others(
    fleet: Fleet, client: Client
) -> None:
    """Whatever somebody does with the row of a run (38)."""
    await fleet.serve_ready()
    handle = await client.start(patient, "held", run_id="held")
    await eventually(lambda: len(fleet.ledger.lines()) == 1, "the step's start")

    with locked_runs(fleet):
        fleet.let("held")
        began = time.monotonic()
        others = [
            await client.start(one, f"other {number}", run_id=f"other-{number}") for number in range(20)
        ]
        results = [await other.result(timeout=30) for other in others]
        took_s = time.monotonic() - began

    assert results == [f"other {number}" for number in range(20)]
    assert took_s < BOUND_S
    assert await handle.result(timeout=30) == "after held"
    assert fleet.breaches() == []


async def test_a_result_is_kept_while_the_disk_of_postgres_is_full(
    rabbit: PrivateRabbit, folder: Path
) -> None:
    """A result that does not fit is written when there is room again; nothing is executed again (35)."""
    with contextlib.ExitStack() as opened:
        # A server of its own: its disk goes away with the test.
        postgres = opened.enter_context(PrivatePostgres())
        try:
            disk = opened.enter_context(small_disk(folder))
        except (PermissionError, FileNotFoundError) as refusal:
            pytest.skip(f"35 disk full: this machine does not let tests mount a small file system: {refusal}")
        async with fleet_on(Servers(postgres, rabbit), folder, name="small") as fleet:
            move_to(disk, fleet)
            await _fill(fleet, disk)
        postgres.drop_database("small")


async def _fill(fleet: Fleet, disk: Path) -> None:
    worker = await fleet.serve_ready()
    async with client_of(fleet.direct) as client:
        handle = await client.start(bulky, "held", run_id="held")
        await eventually(lambda: len(fleet.ledger.lines()) == 1, "the step's start")

        with full(disk):
            fleet.let("held")
            await eventually(lambda: "has no room left on its disk" in worker.said(), "the worker's word")
            assert WAITS in worker.said()

        assert await handle.result(timeout=30) == BULK
    assert [line.attempt for line in fleet.ledger.lines()] == [1, 1]
    assert fleet.breaches() == []
