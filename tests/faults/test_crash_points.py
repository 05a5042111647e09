"""Kill a process at every point where it calls the store or the broker, and within its bodies.

``TIDEWHEEL_CRASH_POINTS=all`` takes every point that a run passes; without it, every distinct one the first
time it is passed, and a sample of the rest.
"""

from __future__ import annotations

import asyncio
import os
import random
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from tests.faults.crash_points import PREFIXES, Watch, calls, members, watched_broker, watched_store
from tests.faults.nursery import Nursery
from tidewheel.store.protocol import Store

#: The points are dealt to so many tests, which may be executed side by side.
SHARDS = 6
#: Cases of one test at a time: they wait more than they work.
AT_A_TIME = 2
#: How many points beside the first of each kind, per test.
SAMPLE = 6
SEED = 20_261_116
#: What no run of the story asks for while nothing goes wrong; other tests of this tier do.
UNCALLED = {
    "broker.depth",
    "broker.offer",  # a relay's
    "delivery.bury",
    "delivery.release",
    "store.changed",
    "store.find",
    "store.journal",
}


async def recorded(nursery: Nursery, folder: Path, blank: Path) -> dict[str, Any]:
    """Play the story without a crash; return what was seen."""
    seen: dict[str, Any] = await nursery.call(
        "tests.faults.crash_case:record", folder=str(folder / "recorded"), blank=str(blank)
    )
    assert seen["wrong"] == []
    return seen


def is_long() -> bool:
    """Tell whether every point is wanted."""
    return os.environ.get("TIDEWHEEL_CRASH_POINTS") == "all"


def shard_of(point: str) -> int:
    """Return the test that a point belongs to, in every run of the tests."""
    return zlib.crc32(point.encode()) % SHARDS


def chosen(points: Sequence[str]) -> list[str]:
    """Return the points to die at: all of them if asked for, else the first of each kind and some others."""
    if is_long():
        return list(points)
    first = [point for point in points if point.endswith("#1")]
    others = [point for point in points if not point.endswith("#1")]
    return first + random.Random(SEED).sample(others, min(SAMPLE, len(others)))


@pytest.mark.parametrize("shard", range(SHARDS))
async def test_a_run_survives_the_death_of_its_process(
    shard: int, nursery: Nursery, folder: Path, blank: Path
) -> None:
    """Wherever a process dies, the next one brings the run to the same result.

    What was journaled as done is not done again, an attempt is executed at most once, repeats have the same
    idempotency key, rows of transactional steps are there once, journals are whole, nothing is left open.
    """
    seen = await recorded(nursery, folder, blank)
    points = chosen([point for point in seen["points"] if shard_of(point) == shard])

    cases = await died_at(nursery, folder, blank, [[point] for point in points])

    assert {point: case["wrong"] for point, case in zip(points, cases, strict=True) if case["wrong"]} == {}
    # What happens at the same time may happen in another order, or in one transaction: a few are not passed.
    assert sum(case["deaths"] for case in cases) >= 0.8 * len(cases)


async def test_a_run_survives_several_deaths(nursery: Nursery, folder: Path, blank: Path) -> None:
    """The process that begins anew dies too, and so does the next: the same holds."""
    seen = await recorded(nursery, folder, blank)
    chance = random.Random(SEED)
    cases_max = 60 if is_long() else 12
    plans = [sorted(chance.sample(seen["points"], 3), key=seen["points"].index) for _ in range(cases_max)]

    cases = await died_at(nursery, folder, blank, plans)

    assert {str(plan): case["wrong"] for plan, case in zip(plans, cases, strict=True) if case["wrong"]} == {}
    assert sum(case["deaths"] for case in cases) >= 1.5 * len(cases)


async def died_at(
    nursery: Nursery, folder: Path, blank: Path, plans: Sequence[Sequence[str]]
) -> list[dict[str, Any]]:
    """Carry out cases, a few at a time; each dies at the points of its plan in turn."""
    turns = asyncio.Semaphore(AT_A_TIME)

    async def die(number: int, plan: Sequence[str]) -> dict[str, Any]:
        async with turns:
            case: dict[str, Any] = await nursery.call(
                "tests.faults.crash_case:die_and_recover",
                folder=str(folder / f"case-{number}"),
                blank=str(blank),
                points=list(plan),
            )
            return case

    return await asyncio.gather(*(die(number, plan) for number, plan in enumerate(plans)))


async def test_the_story_passes_every_point_and_nothing_goes_past_them(
    nursery: Nursery, folder: Path, blank: Path
) -> None:
    """All that a worker, a keeper and a client ask for goes through the wrappers; few calls are not made."""
    seen = await recorded(nursery, folder, blank)

    called = {point.partition(":")[0].partition("[")[0] for point in seen["points"]}
    assert seen["unwatched"] == []
    assert calls() - called == UNCALLED


async def test_every_method_of_the_protocols_has_points() -> None:
    """Each method of a store, broker, delivery or transaction announces itself before and after."""
    for protocol, prefix in PREFIXES.items():
        for name, kind in members(protocol).items():
            watch = Watch()
            wrapped = _wrapped(protocol, watch)
            if kind == "call":
                await getattr(wrapped, name)()
                wanted = [f"{prefix}.{name}:before#1", f"{prefix}.{name}:after#1"]
            elif kind == "block":
                async with getattr(wrapped, name)():
                    pass
                block = f"{prefix}.{name}"
                wanted = [f"{block}{part}:{when}#1" for part in ("", ".exit") for when in ("before", "after")]
            elif kind == "submission":
                getattr(wrapped, name)(None, lambda _: None)
                wanted = [f"{prefix}.{name}:before#1", f"{prefix}.{name}:after#1"]
            else:
                wanted = []
            assert watch.reached == wanted


def test_a_member_that_nobody_classified_is_refused() -> None:
    """A protocol cannot grow a method that the crash points do not know how to watch."""

    class Grown:
        """A protocol with a plain function."""

        def open_later(self) -> None:
            """Do something that is neither a coroutine nor a known block."""

    PREFIXES[Grown] = "grown"
    try:
        with pytest.raises(TypeError, match="open_later"):
            members(Grown)
    finally:
        del PREFIXES[Grown]


async def test_a_call_past_the_wrapper_is_noticed() -> None:
    """Whoever holds the real thing and calls it is found out; whoever goes through the wrapper is not."""
    watch, real = Watch(), _Anything()
    wrapped = watched_store(cast("Store", real), watch)
    watch.seal(real, Store)

    await wrapped.now()
    assert watch.unwatched == []

    await real.now()
    assert watch.unwatched == ["store.now"]


class _Anything:
    """Answers every call with nothing."""

    def __getattr__(self, name: str) -> Any:
        return _Nothing

    def submit(self, _request: object, answered: Callable[[Any], None]) -> None:
        """Call back."""
        answered(None)


class _Nothing:
    """Can be awaited, and entered."""

    def __await__(self) -> Any:
        return iter(())

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, *_: object) -> None:
        return None


def _wrapped(protocol: type, watch: Watch) -> Any:
    from tests.faults.crash_points import _wrapper

    real: Any = _Anything()
    makers: dict[str, Any] = {"store": watched_store, "broker": watched_broker}
    made = makers.get(PREFIXES[protocol])
    return made(real, watch) if made is not None else _wrapper(protocol)(real, watch)
