"""What a process says of itself when it is asked how it is."""

from __future__ import annotations

import asyncio

from tests.unit.workers.house import House
from tidewheel import App
from tidewheel.workers.health import CHECK_TIMEOUT_S, FRESH_S, Health, broker_answers, store_answers


def _health_of(house: House) -> Health:
    health = Health()
    health.require("store", store_answers(house.store, "default"))
    health.require("broker", broker_answers(house.broker, "default", "default"))
    health.begin()
    return health


async def test_a_process_is_ready_when_everything_it_needs_answers(house: House) -> None:
    """All checks are content, and the report says so."""
    worker = await house.worker(App("app"))
    health = _health_of(house)
    health.require("consuming", worker.hears)
    await asyncio.sleep(0.1)

    report = await health.ready()

    assert report.to_json() == {
        "status": "ok",
        "checks": {"store": "ok", "broker": "ok", "consuming": "ok"},
    }


async def test_what_is_wrong_is_named_and_passes(house: House) -> None:
    """A store or broker that is away makes it not ready, a moment after they are back it is again."""
    health = _health_of(house)
    house.store.is_down = house.broker.is_down = True

    away = await health.ready()
    house.store.is_down = house.broker.is_down = False
    await asyncio.sleep(FRESH_S)
    back = await health.ready()

    assert not away.is_ok
    assert away.checks.keys() == {"store", "broker"}
    assert "ok" not in away.checks.values()
    assert back.is_ok


async def test_a_worker_that_hears_nothing_is_not_ready(house: House) -> None:
    """Its store and its broker may answer: a queue that it does not consume is named."""
    worker = await house.worker(App("app"))
    health = Health()
    health.require("consuming", worker.hears)
    health.begin()
    worker._chores[0].cancel()
    await asyncio.sleep(0.1)

    report = await health.ready()

    assert report.checks == {"consuming": "not consuming tidewheel.work.default"}


async def test_however_often_it_is_asked_it_looks_once(house: House) -> None:
    """What was found is told to everybody for a moment: probes do not become load."""
    health = _health_of(house)
    before = house.store.calls["find"]

    reports = await asyncio.gather(*(health.ready() for _ in range(100)))
    reports += [await health.ready() for _ in range(100)]

    assert all(report.is_ok for report in reports)
    assert house.store.calls["find"] == before + 1


async def test_a_check_that_hangs_is_given_up(house: House) -> None:
    """An answer comes within a bounded time, whatever is asked about."""
    health = Health()
    health.require("hung", asyncio.Event().wait)  # type: ignore[arg-type]  # it never returns
    health.require("well", store_answers(house.store, "default"))
    health.begin()
    began = asyncio.get_running_loop().time()

    report = await health.ready()

    assert report.checks == {"hung": f"no answer within {CHECK_TIMEOUT_S:g} s", "well": "ok"}
    assert asyncio.get_running_loop().time() - began < CHECK_TIMEOUT_S + 0.1


async def test_told_to_stop_it_is_not_ready_at_once_but_lives(house: House) -> None:
    """However fresh it is that everything was well."""
    health = _health_of(house)
    await health.ready()

    health.drain()

    assert (await health.ready()).to_json() == {
        "status": "failing",
        "checks": {"draining": "it was told to stop"},
    }
    assert (await health.live()).to_json() == {"status": "ok", "checks": {"loop": "ok"}}


async def test_a_process_that_starts_lives_and_is_not_ready(house: House) -> None:
    """It says what it waits for."""
    health = Health()
    health.waits_for = "the store: connection refused"

    report = await health.ready()

    assert report.checks == {"starting": "the store: connection refused"}
    assert (await health.live()).is_ok
