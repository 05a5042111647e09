"""``dev``, ``up``, ``worker``, ``keeper``: from a command line to roles that run until they are stopped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from tidewheel.broker.opening import open_broker
from tidewheel.broker.protocol import Broker
from tidewheel.cli import apps, logs, output
from tidewheel.cli.connecting import Where, opened_store
from tidewheel.cli.exit_codes import ExitCode
from tidewheel.cli.failure import Failure
from tidewheel.cli.roles.banner import Banner
from tidewheel.cli.roles.witness import watched
from tidewheel.sdk.limits import Limits
from tidewheel.sdk.settings import ConnectionSettings
from tidewheel.store.protocol import Store
from tidewheel.workers.config import KeeperConfig, WorkerConfig
from tidewheel.workers.keeper import Keeper
from tidewheel.workers.process import Role, release_the_dead, running, until_told_to_stop
from tidewheel.workers.watchdog import Watchdog
from tidewheel.workers.worker import Worker

logger = logging.getLogger("tidewheel.process")

#: How long an idle thread may take to end.
THREAD_TIMEOUT_S = 0.5

Made = Callable[[Store, Broker], Sequence[Role]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says beside where everything is."""

    queues: list[str] | None
    grace_s: float | None
    level: str
    as_json: bool

    def worker_config(self) -> WorkerConfig:
        """Return the flags, then the environment, then the defaults."""
        queues = tuple(self.queues) if self.queues else None
        return WorkerConfig.from_environment(queues=queues, grace_s=self.grace_s)


def dev_where(folder: str | None, store: str | None, broker: str | None, namespace: str | None) -> Where:
    """Return where ``dev`` keeps its things: *folder*, unless a store is named."""
    if folder is None:
        return Where(store, broker, namespace)
    if store is not None:
        message = "--dir and --store both say where the store is"
        raise Failure.usage(message, "tidewheel dev")
    path = Path(folder).resolve()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        message = f"folder {folder!r} cannot be used: {problem.strerror}"
        raise Failure.invalid(message) from None
    store = f"sqlite:///{quote(str(path / 'tidewheel.db'))}"
    # Unless a broker is named, its file is beside the store's, whatever the environment says.
    return Where(store, broker or "embedded://", namespace)


def dev(reference: str, where: Where, options: Options) -> ExitCode:
    """Run all roles, say how to use them, and bring the store up to date first."""
    return _serve("dev", reference, where, options, with_keeper=True, auto_migrate=True)


def up(reference: str, where: Where, options: Options) -> ExitCode:
    """Run all roles on the configured store and broker."""
    return _serve("up", reference, where, options, with_keeper=True)


def worker(reference: str, where: Where, options: Options) -> ExitCode:
    """Run a worker alone."""
    return _serve("worker", reference, where, options, with_keeper=False)


def keeper(where: Where, options: Options) -> ExitCode:
    """Run a keeper alone."""
    return _serve("keeper", None, where, options, with_keeper=True)


def _serve(
    command: str,
    reference: str | None,
    where: Where,
    options: Options,
    *,
    with_keeper: bool,
    auto_migrate: bool = False,
) -> ExitCode:
    settings = where.settings()
    worker_config, keeper_config = options.worker_config(), KeeperConfig.from_environment()
    limits = Limits.from_environment()
    app = None if reference is None else apps.load(reference, warn=not options.as_json)
    banner = Banner(
        command=command,
        reference=reference,
        app=app,
        settings=settings,
        queues=() if app is None else worker_config.queues,
    )

    def roles(store: Store, broker: Broker) -> Sequence[Role]:
        # Stopped in the opposite order: the keeper goes on while the worker finishes.
        made: list[Role] = [Watchdog()]
        if with_keeper:
            made.append(Keeper(store, broker, namespace=settings.namespace, config=keeper_config))
        if app is not None:
            made.append(
                Worker(
                    app,
                    watched(store),
                    broker,
                    namespace=settings.namespace,
                    config=worker_config,
                    limits=limits,
                )
            )
        return made

    with _logging(options):
        asyncio.run(_run(settings, roles, banner, as_json=options.as_json, auto_migrate=auto_migrate))
    _leave_stuck_threads()
    return ExitCode.OK


def _leave_stuck_threads() -> None:
    """End the process now if a plain function did not come back within the grace.

    Python waits for all threads when it ends, and there is nothing left to wait for: the step was
    handed back.
    """
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("tidewheel-task")]
    for thread in threads:
        thread.join(THREAD_TIMEOUT_S)
    if any(thread.is_alive() for thread in threads):
        output.close()
        os._exit(ExitCode.OK)


async def _run(
    settings: ConnectionSettings, roles: Made, banner: Banner, *, as_json: bool, auto_migrate: bool
) -> None:
    # Signals are heard from here on: one that comes while everything starts is not lost.
    told = asyncio.create_task(until_told_to_stop())
    await asyncio.sleep(0)
    async with _opened(settings, auto_migrate=auto_migrate) as (store, broker):
        dead = await release_the_dead(store)
        if dead:
            logger.info("takes over from workers of this host that ended: %s", ", ".join(dead))
        async with running(roles(store, broker)):
            banner.show(as_json=as_json)
            await told
            logger.info("stopping: finishes or hands back what is in hand; a second signal ends at once")
    logger.info("stopped")


@contextlib.asynccontextmanager
async def _opened(settings: ConnectionSettings, *, auto_migrate: bool) -> AsyncIterator[tuple[Store, Broker]]:
    async with contextlib.AsyncExitStack() as opened:
        store = await opened_store(settings, create=True, auto_migrate=auto_migrate)
        opened.push_async_callback(store.close)
        broker = open_broker(settings.broker, store_url=settings.store)
        opened.push_async_callback(broker.close)
        yield store, broker


@contextlib.contextmanager
def _logging(options: Options) -> Iterator[None]:
    if not options.as_json:
        with logs.of_a_service(sys.stderr, level=options.level, as_json=False):
            yield
        return
    # Standard output belongs to the log; what the app itself prints goes to standard error.
    stream = sys.stdout
    with contextlib.redirect_stdout(sys.stderr), logs.of_a_service(stream, level=options.level, as_json=True):
        yield
    output.close()
