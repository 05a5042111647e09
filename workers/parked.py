"""Runs that wait for other code: each new worker that may have it gets one try."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence

from tidewheel.broker.errors import Unroutable
from tidewheel.broker.protocol import Broker
from tidewheel.broker.topology import sticky_queue
from tidewheel.broker.work_items import RunHint, to_queue
from tidewheel.sdk.hinting import publications
from tidewheel.store.append import Append, Unpark
from tidewheel.store.protocol import RunFilter, Store
from tidewheel.store.records import RunRecord, WorkerRecord

logger = logging.getLogger("tidewheel.keeper")

#: Parked runs looked at in one round, and tries remembered.
ROUND_MAX = 500
REMEMBERED_MAX = 100_000


class ParkedRuns:
    """Remembers which worker was tried for which run. An operator's quarantine is left alone."""

    def __init__(self, store: Store, broker: Broker, namespace: str) -> None:
        self._store = store
        self._broker = broker
        self._namespace = namespace
        self._tried: OrderedDict[tuple[bytes, str, int], None] = OrderedDict()

    async def retry(self, workers: Sequence[WorkerRecord]) -> None:
        """Wake the parked runs for which one of *workers* is new and may have the code."""
        before: bytes | None = None
        while True:
            which = RunFilter(
                namespace=self._namespace, open_only=True, parked_only=True, limit=ROUND_MAX, before=before
            )
            runs = await self._store.runs(which)
            for run in runs:
                worker = next((one for one in workers if self._is_worth_a_try(run, one)), None)
                if worker is not None:
                    await self._wake(run, worker)
            if len(runs) < ROUND_MAX:
                return
            before = runs[-1].key

    def _is_worth_a_try(self, run: RunRecord, worker: WorkerRecord) -> bool:
        if run.parked == "quarantine" or (run.key, worker.worker_id, run.last_seq) in self._tried:
            return False
        if worker.namespace != run.namespace or run.queue not in worker.queues:
            return False
        return any(
            name == run.workflow
            and (run.parked != "needs_version" or not run.version or run.version == version)
            for name, version, _digest in worker.workflows
        )

    async def _wake(self, run: RunRecord, worker: WorkerRecord) -> None:
        logger.info("run %s was parked (%s) and is tried by %s", run.ref, run.parked, worker.worker_id)
        (answer,) = await self._store.append([Append(run=run.ref, mark=Unpark())])
        hint = RunHint(namespace=run.namespace, run_id=run.run_id)
        try:
            await self._broker.publish([to_queue(hint, sticky_queue(worker.worker_id))])
        except Unroutable:
            # Anybody may take it now, and park it again: then this worker has still to be tried.
            await self._broker.publish(publications([answer]))
            return
        self._tried[run.key, worker.worker_id, run.last_seq] = None
        while len(self._tried) > REMEMBERED_MAX:
            self._tried.popitem(last=False)
