"""One way for a process to die, and what is left of the run afterwards.

A case is two processes over the same files: the first is killed at a point, the second begins anew and brings
the run to its end. Both execute the same program, as a service that is restarted would.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import shutil
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tests.faults import forking, mutants
from tests.faults.audit import Death, completed_keys, findings
from tests.faults.crash_points import Watch, watched_broker, watched_store
from tests.faults.ledger import Ledger
from tests.faults.place import open_both, store_file, store_url
from tests.faults.story import PROMISE, RUN_ID, SIGNAL, Stage, app, story
from tidewheel.broker.embedded.sqlite_file import SqliteFile
from tidewheel.broker.protocol import Broker
from tidewheel.journal import events as ev
from tidewheel.sdk.client import Client
from tidewheel.sdk.errors import AlreadyResolved, NotFound, SignalRejected
from tidewheel.sdk.handle import Handle
from tidewheel.store.opening import open_store
from tidewheel.store.protocol import Store
from tidewheel.store.records import RunRef
from tidewheel.store.sqlite.connection import Database
from tidewheel.workers.config import KeeperConfig, WorkerConfig
from tidewheel.workers.keeper import Keeper
from tidewheel.workers.process import Role, release_the_dead, running
from tidewheel.workers.worker import Worker

#: A run that takes longer than this has got stuck; without a keeper nothing comes later.
STUCK_S = 30.0
STUCK_WITHOUT_KEEPER_S = 5.0
KILLED = -9


def record(folder: str, blank: str) -> dict[str, Any]:
    """Play the story to its end without dying; return its points, and what went past the wrappers."""
    place = _copied(Path(blank), Path(folder))
    watch = Watch()
    began = time.monotonic()
    result = asyncio.run(_play(place, watch, keeper=True, is_recording=True))
    seconds = time.monotonic() - began
    wrong = findings(place, result, [])
    return {"points": watch.reached, "unwatched": watch.unwatched, "wrong": wrong, "seconds": seconds}


def die_and_recover(
    folder: str, blank: str, points: list[str], *, keeper: bool = True, mutant: str | None = None
) -> dict[str, Any]:
    """Die at each of *points* in turn, begin anew, and return what is wrong then; nothing, if all is well.

    *keeper* is whether the last process has one; *mutant* breaks the code of all.
    """
    place = _copied(Path(blank), Path(folder))
    deaths: list[Death] = []
    for number, point in enumerate(points):
        log = place / f"died-{number}.log"
        code = _played(log, folder=folder, point=point, mutant=mutant)
        if code not in (0, KILLED):
            return {"deaths": len(deaths), "wrong": [_ended(log, code)], "seconds": 0.0}
        if code == KILLED:
            deaths.append(Death(completed_keys(store_file(place)), len(Ledger(place).lines())))
    began = time.monotonic()
    log = place / "recovered.log"
    code = _played(log, folder=folder, point=None, keeper=keeper, mutant=mutant)
    seconds = time.monotonic() - began
    if code == 0:
        wrong = findings(place, json.loads(forking.answer_file(log).read_text("utf-8")), deaths)
    else:
        wrong = [_ended(log, code)]
    if not wrong:
        shutil.rmtree(place)
    return {"deaths": len(deaths), "wrong": wrong, "seconds": seconds}


def _played(log: Path, **arguments: Any) -> int:
    return forking.wait(forking.fork("tests.faults.crash_case:play", arguments, log))


def _ended(log: Path, code: int) -> str:
    return f"{log.name} ended with {code}:\n{log.read_text('utf-8')[-6000:]}"


def play(folder: str, point: str | None, *, keeper: bool = True, mutant: str | None = None) -> Any:
    """Be a service that plays the story; die at *point*."""
    logging.basicConfig(level=logging.INFO, format="%(relativeCreated)d %(name)s %(message)s")
    if mutant is not None:
        mutants.APPLIED[mutant]()
    return asyncio.run(_play(Path(folder), Watch(point), keeper=keeper))


async def _play(folder: Path, watch: Watch, *, keeper: bool, is_recording: bool = False) -> Any:
    Stage.set(folder, watch)
    _watch_commits(watch)
    async with AsyncExitStack() as opened:
        real_store, real_broker = await open_both(folder)
        store, broker = watched_store(real_store, watch), watched_broker(real_broker, watch)
        if is_recording:
            watch.seal(real_store, Store)
            watch.seal(real_broker, Broker)
        opened.push_async_callback(store.close)
        opened.push_async_callback(broker.close)
        look = await open_store(store_url(folder))
        opened.push_async_callback(look.close)
        await release_the_dead(store)
        roles: list[Role] = [Worker(app, store, broker, config=WorkerConfig(lease_s=1.0, grace_s=5.0))]
        if keeper:
            roles.append(Keeper(store, broker, config=KeeperConfig(poll_s=0.05)))
        await opened.enter_async_context(running(roles))
        client = await opened.enter_async_context(await Client.connect(store=store, broker=broker))
        result = await asyncio.wait_for(
            _tell(client, look, is_quiet=not keeper), STUCK_S if keeper else STUCK_WITHOUT_KEEPER_S
        )
        while is_recording and "store.renew:after#1" not in watch.reached:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
        return result


async def _tell(client: Client, look: Store, *, is_quiet: bool) -> Any:
    """Be the world outside: start the run, send what it waits for, wait for its result.

    Everything may have been done before, by a process that was killed; to do it again wakes the run, unless
    *is_quiet*. *look* is not watched.
    """
    await client.listen()
    handle: Handle[Any] = client.handle(RUN_ID)
    if not is_quiet:
        await client.start(story, {}, run_id=RUN_ID)
        await _unless_over(handle.signal("early", {"sent": "before"}, request_id="early-1"))
    await _until(look, _waits_for_signal)
    await _unless_over(handle.signal(SIGNAL, {"sent": "while it waited"}, request_id="go-1"))
    await _until(look, _has_promise)
    await _unless_over(handle.resolve(PROMISE, {"by": "somebody"}))
    return await handle.result()


async def _unless_over(sending: Awaitable[None]) -> None:
    """Send it; the run may have gone on with what was sent before."""
    with contextlib.suppress(AlreadyResolved, NotFound, SignalRejected):
        await sending


async def _until(look: Store, holds: Callable[[ev.Event], bool]) -> None:
    """Wait for an event in the journal."""
    while True:
        entries = await look.journal(RunRef("default", RUN_ID))
        if any(holds(entry.event) for entry in entries or ()):
            return
        await look.changed(0.05)


def _waits_for_signal(event: ev.Event) -> bool:
    return isinstance(event, ev.ExecutionAwaiting) and any(
        wait.signal_name == SIGNAL for wait in event.signals
    )


def _has_promise(event: ev.Event) -> bool:
    return isinstance(event, ev.PromiseCreated) and event.name == PROMISE


def _watch_commits(watch: Watch) -> None:
    """Make each COMMIT of the store's file, and of the broker's, a point too (K3)."""
    connect_as, execute = Database.connect_as, SqliteFile.execute

    def hear(statement: str) -> None:
        if statement == "COMMIT":
            watch.reach("sqlite.commit:before")

    def connect(self: Database, factory: type[sqlite3.Connection], *, reads_only: bool = False) -> Any:
        connection = connect_as(self, factory, reads_only=reads_only)
        connection.set_trace_callback(hear)
        return connection

    def commit(self: SqliteFile, statement: str, **values: object) -> sqlite3.Cursor:
        if statement != "COMMIT":
            return execute(self, statement, **values)
        watch.reach("queues.commit:before")
        done = execute(self, statement, **values)
        watch.reach("queues.commit:after")
        return done

    setattr(Database, "connect_as", connect)  # noqa: B010 - mypy knows that it is a method
    setattr(SqliteFile, "execute", commit)  # noqa: B010 - as above


def _copied(blank: Path, folder: Path) -> Path:
    shutil.copytree(blank, folder)
    return folder
