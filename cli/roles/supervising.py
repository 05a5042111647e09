"""``--processes N``: this process starts workers and sees to it that they run; it executes nothing itself.

The first worker is started alone: what is wrong with the app, the options or the servers is then told
once. One that ends is started again, after a pause; one that says that it can never work ends all. ``up`` has
its keeper in a child of its own, beside the workers, where no user code can hold it up.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Sequence
from typing import Final

from tidewheel.cli.exit_codes import ExitCode
from tidewheel.cli.roles.banner import Banner
from tidewheel.cli.roles.charge import Charge
from tidewheel.workers.config import Address
from tidewheel.workers.health import Check, Health
from tidewheel.workers.health_server import HealthServer
from tidewheel.workers.process import end_at_once, running, until_told_to_stop
from tidewheel.workers.restarting import Restarts

logger = logging.getLogger("tidewheel.process")

#: A child that has said nothing for so long does not live.
SILENT_AFTER_S: Final = 10.0
#: The same, for one that has said nothing yet: an app may take long to be imported.
SILENT_AT_START_S: Final = 120.0
#: A child that has not ended so long after its grace is killed.
OVERTIME_S: Final = 15.0
#: How a child that can never work ends: no restart mends it.
_FOR_GOOD: Final = frozenset({ExitCode.INVALID, ExitCode.NOT_FOUND})


class Supervisor:
    """Runs *charges* until it is told to stop, or one of them can never work."""

    def __init__(self, charges: Sequence[Charge], banner: Banner, *, grace_s: float, as_json: bool) -> None:
        self._charges = charges
        self._banner = banner
        self._grace_s = grace_s
        self._as_json = as_json
        self._has_worked = False
        #: Set when nothing is to be started any more.
        self._over = asyncio.Event()
        self._news = asyncio.Event()
        self._verdict = ExitCode.OK

    async def run(self, health: Health) -> ExitCode:
        """Return how everything ended, when it has."""
        told = asyncio.create_task(until_told_to_stop(self._end_at_once))
        await asyncio.sleep(0)
        for charge in self._charges:
            health.watch(charge.name, _lives(charge))
            health.require(charge.name, _works(charge))
        health.begin()
        keeping = asyncio.create_task(self._keep_all(), name="supervisor")
        over = asyncio.create_task(self._over.wait())
        try:
            await asyncio.wait([told, over, keeping], return_when=asyncio.FIRST_COMPLETED)
            health.drain()
            if told.done():
                logger.info("stopping: finishes or hands back what is in hand; a second signal ends at once")
            self._stop_all()
            return await self._end(keeping)
        finally:
            for task in (told, over, keeping):
                task.cancel()
            await asyncio.gather(told, over, keeping, return_exceptions=True)

    def _stop_all(self) -> None:
        self._over.set()
        self._news.set()
        for charge in self._charges:
            charge.stop()

    def _end_at_once(self) -> None:
        for charge in self._charges:
            charge.kill(signal.SIGKILL)
        end_at_once()

    async def _end(self, keeping: asyncio.Task[None]) -> ExitCode:
        _, late = await asyncio.wait([keeping], timeout=self._grace_s + OVERTIME_S)
        if late:
            for charge in self._charges:
                if charge.pid:
                    logger.error("%s (%d) did not end within its grace: killed", charge.name, charge.pid)
                    charge.kill(signal.SIGKILL)
            await asyncio.wait([keeping])
            return ExitCode.FINDING
        keeping.result()
        return self._verdict

    # Keeping

    async def _keep_all(self) -> None:
        """Start the first child, once it works the others, and keep all of them running."""
        first, *others = self._charges
        keepers = [asyncio.create_task(self._keep(first))]
        try:
            await self._until_work([first])
            keepers += [asyncio.create_task(self._keep(charge)) for charge in others]
            await self._until_work(self._charges)
            if not self._over.is_set():
                self._has_worked = True
                processes = {charge.name: charge.pid for charge in self._charges}
                self._banner.show(first.contents, processes=processes, as_json=self._as_json)
            await asyncio.gather(*keepers)
        finally:
            for keeper in keepers:
                keeper.cancel()
            await asyncio.gather(*keepers, return_exceptions=True)

    async def _until_work(self, charges: Sequence[Charge]) -> None:
        """Return when all of *charges* work, or it is over."""
        while not self._over.is_set() and not all(charge.works for charge in charges):
            self._news.clear()
            await self._news.wait()

    async def _keep(self, charge: Charge) -> None:
        """Run one child, again and again."""
        loop = asyncio.get_running_loop()
        restarts = Restarts()
        while not self._over.is_set():
            restarts.began(loop.time())
            code = await charge.live(lambda: self._has_news(charge))
            if self._over.is_set():
                if code != ExitCode.OK:
                    logger.warning("%s %s while it was stopping", charge.name, ended(code))
                return
            can_never = code in _FOR_GOOD and not charge.has_worked
            if can_never or (code == ExitCode.UNREACHABLE and not self._has_worked):
                self._give_up(charge, ExitCode(code))
                return
            pause_s = restarts.pause_s(loop.time())
            logger.warning("%s %s; it is started again in %.1f s", charge.name, ended(code), pause_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._over.wait()

    def _has_news(self, charge: Charge) -> None:
        if self._has_worked:
            logger.info("%s (%d) works again", charge.name, charge.pid)
        self._news.set()

    def _give_up(self, charge: Charge, code: ExitCode) -> None:
        """Stop everything: *charge* would end the same way each time."""
        self._verdict = code
        if self._has_worked:
            logger.error("%s %s, and would again: everything is stopped", charge.name, ended(code))
        self._stop_all()


def ended(code: int) -> str:
    """Say how a process ended."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def _lives(charge: Charge) -> Check:
    async def check() -> str | None:
        if not charge.pid:
            return None  # it is being started again; whether it works is another question
        now = asyncio.get_running_loop().time()
        if charge.heard_at is None:
            waited_s = now - charge.began_at
            return f"has said nothing for {waited_s:.0f} s" if waited_s > SILENT_AT_START_S else None
        silent_s = now - charge.heard_at
        return f"has said nothing for {silent_s:.0f} s" if silent_s > SILENT_AFTER_S else None

    return check


def _works(charge: Charge) -> Check:
    async def check() -> str | None:
        wrong = "; ".join(f"{name}: {found}" for name, found in charge.wrong.items())
        if not charge.works:
            return wrong or "is being started"
        return wrong or await _lives(charge)()

    return check


def supervise(
    charges: Sequence[Charge], banner: Banner, *, health_at: Address | None, grace_s: float, as_json: bool
) -> ExitCode:
    """Run *charges* until told to stop; return how that ended."""

    async def run() -> ExitCode:
        health = Health()
        servers = [] if health_at is None else [HealthServer(health_at, health)]
        async with running(servers):
            supervisor = Supervisor(charges, banner, grace_s=grace_s, as_json=as_json)
            code = await supervisor.run(health)
        logger.info("stopped")
        return code

    return asyncio.run(run())
