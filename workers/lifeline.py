"""One row per process that says it is alive: what it executes is nobody else's as long as it is."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import os
import socket
import uuid
from pathlib import Path

from msgspec.structs import replace

from tidewheel.journal.errors import TidewheelError
from tidewheel.sdk.app import App
from tidewheel.store.protocol import Store
from tidewheel.store.records import WorkerRecord
from tidewheel.workers.config import WorkerConfig

logger = logging.getLogger("tidewheel.workers")


class Lifeline:
    """Announces a worker and renews its lease; a worker that was given up announces itself again."""

    def __init__(
        self, store: Store, app: App, config: WorkerConfig, *, worker_id: str, namespace: str
    ) -> None:
        self._store = store
        self._config = config
        self._record = WorkerRecord(
            worker_id=worker_id,
            namespace=namespace,
            host=socket.gethostname(),
            pid=os.getpid(),
            began=process_began(os.getpid()),
            queues=config.queues,
            workflows=tuple((w.name, w.version, w.digest) for w in app.workflows.values()),
            started_at=_EPOCH,
            alive_until=_EPOCH,
        )

    async def announce(self) -> None:
        """Register, with a fresh lease."""
        now = await self._store.now()
        until = now + dt.timedelta(seconds=self._config.lease_s)
        await self._store.register(replace(self._record, started_at=now, alive_until=until))

    async def renew_for_ever(self) -> None:
        """Renew three times per lease, until cancelled."""
        while True:
            await asyncio.sleep(self._config.lease_s / 3)
            try:
                if not await self._store.renew(self._record.worker_id, self._config.lease_s):
                    logger.warning("this worker was taken for dead; it announces itself again")
                    await self.announce()
            except TidewheelError as problem:
                logger.warning("the lease of this worker was not renewed: %s", problem)
            except Exception:
                logger.exception("the lease of this worker was not renewed")

    async def end(self) -> None:
        """Say that this worker is gone."""
        await self._store.give_up([self._record.worker_id])


_EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)


def new_worker_id() -> str:
    """A name that no other process has, and that people can place."""
    return f"{socket.gethostname()[:40]}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def process_began(pid: int) -> str:
    """When the process with this *pid* began, as the system counts it; empty if there is none.

    A pid is used again after its process has ended: the two together name a process. One that was
    killed and that nobody has asked for yet (a zombie) has ended.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]


def is_gone(worker: WorkerRecord) -> bool:
    """Tell whether *worker* was a process of this host and has ended; if that cannot be known, it is not."""
    if worker.host != socket.gethostname() or not worker.began:
        return False
    return process_began(worker.pid) != worker.began
