"""How a process is, for whoever asks: whether it lives, and whether it can work.

*Live*: its event loop moves; it says so by answering at all. *Ready*: what it needs can be reached, it
takes work, and nobody told it to stop. Looking costs little and is bounded: every check has a time
limit, and what was found is told to everybody who asks within a moment. How the answers reach a
prober is not here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import msgspec

from tidewheel.broker.protocol import Broker
from tidewheel.broker.topology import work_queue
from tidewheel.store.protocol import Store
from tidewheel.store.records import RunRef

OK = "ok"
#: The longest that one check may take.
CHECK_TIMEOUT_S = 2.0
#: What was found is believed for so long.
FRESH_S = 1.0

#: Returns what is wrong, or nothing; what it raises is wrong too.
Check: TypeAlias = Callable[[], Awaitable[str | None]]


class Report(msgspec.Struct, frozen=True):
    """What each check found: ``ok``, or what is wrong."""

    checks: dict[str, str]

    @property
    def is_ok(self) -> bool:
        """Whether nothing is wrong."""
        return all(found == OK for found in self.checks.values())

    def to_json(self) -> dict[str, Any]:
        """Return the report as probers read it."""
        return {"status": OK if self.is_ok else "failing", "checks": self.checks}


class Health:
    """The checks of one process. Until there are any it is starting, and not ready."""

    def __init__(self) -> None:
        #: What a process that does not work yet is waiting for.
        self.waits_for: str | None = "everything is being started"
        self._is_draining = False
        self._live: dict[str, Check] = {}
        self._ready: dict[str, Check] = {}
        self._found: dict[str, str] = {}
        self._found_at: float | None = None
        self._looking: asyncio.Task[None] | None = None

    def watch(self, name: str, check: Check) -> None:
        """The process does not live unless *check* is content."""
        self._live[name] = check

    def require(self, name: str, check: Check) -> None:
        """The process is not ready unless *check* is content."""
        self._ready[name] = check

    def begin(self) -> None:
        """Everything is started."""
        self.waits_for = None

    def drain(self) -> None:
        """The process was told to stop: it is not ready from now on, however fresh what was found is."""
        self._is_draining = True

    async def live(self) -> Report:
        """Tell whether the process lives."""
        return Report({"loop": OK, **await _look_at(self._live)})

    async def ready(self) -> Report:
        """Tell whether the process can work."""
        if not self._is_draining and self.waits_for is None:
            await self._look_again()
        return self._as_known()

    def _as_known(self) -> Report:
        if self._is_draining:
            return Report({"draining": "it was told to stop"})
        if self.waits_for is not None:
            return Report({"starting": self.waits_for})
        return Report(dict(self._found))

    async def _look_again(self) -> None:
        """Find out how everything is, unless somebody just did, or is about to."""
        now = asyncio.get_running_loop().time()
        if self._found_at is not None and now - self._found_at < FRESH_S:
            return
        if self._looking is None:
            self._looking = asyncio.create_task(self._look(), name="tidewheel-health")
        await asyncio.shield(self._looking)

    async def _look(self) -> None:
        try:
            self._found = await _look_at(self._ready)
            self._found_at = asyncio.get_running_loop().time()
        finally:
            self._looking = None

    async def close(self) -> None:
        """Look no more."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)


async def _look_at(checks: dict[str, Check]) -> dict[str, str]:
    found = await asyncio.gather(*(_outcome(check) for check in checks.values()))
    return dict(zip(checks, found, strict=True))


async def _outcome(check: Check) -> str:
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            return await check() or OK
    except TimeoutError:
        return f"no answer within {CHECK_TIMEOUT_S:g} s"
    except Exception as problem:  # noqa: BLE001 - whatever it is, that is what is wrong
        return str(problem) or type(problem).__name__


def store_answers(store: Store, namespace: str) -> Check:
    """Check that the store can be read: a run is looked for that nobody can have started."""

    async def check() -> None:
        await store.find(RunRef(namespace, ""))

    return check


def broker_answers(broker: Broker, namespace: str, queue: str) -> Check:
    """Check that the broker can be asked, about a queue of ours."""

    async def check() -> None:
        await broker.depth(work_queue(namespace, queue))

    return check
