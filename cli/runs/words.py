"""Sentences about runs that several commands say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidewheel.cli.timeline.text import plain
from tidewheel.sdk.digest import DIGEST_SHOWN
from tidewheel.store.records import ParkedAs, RunRecord, WorkerRecord

#: Workers that a sentence names.
NAMED_MAX: Final = 3

#: What to do about a parked run, by why it is parked.
MENDS: Final[dict[ParkedAs, str]] = {
    "violation": "deploy code that fits its journal (`tidewheel replay APP {run}` tells where it does not): "
    "it is then tried again by itself, or with `tidewheel run unpark {run}`",
    "needs_version": "start a worker with that version: the run is then tried again by itself",
    "unknown_workflow": "start a worker whose app has this workflow: the run is then tried again by itself",
    "unreadable": "see `tidewheel journal verify {run}`; a newer release may be able to read it",
    "quarantine": "find out why workers died with it, mend that, then `tidewheel run unpark {run}`",
}


def parked_words(record: RunRecord) -> str:
    """Say that a run is parked, why, and what to do about it."""
    assert record.parked is not None
    return f"run {record.run_id} is parked ({record.parked}): {parked_reason(record)}; {mend(record)}"


def parked_reason(record: RunRecord) -> str:
    """Say why a run is parked."""
    return plain(record.parked_reason or "no reason was given")


def mend(record: RunRecord) -> str:
    """Say what to do about a parked run."""
    assert record.parked is not None
    return MENDS[record.parked].format(run=record.run_id)


def having(record: RunRecord, alive: Sequence[WorkerRecord]) -> str:
    """Say which code of a run's workflow the workers have that are *alive*."""
    found: dict[str, list[str]] = {}
    for worker in alive:
        for name, version, digest in worker.workflows:
            if name == record.workflow and worker.namespace == record.namespace:
                code = f"code {digest[:DIGEST_SHOWN]}" if not version else f"version {version!r}"
                serves = "" if record.queue in worker.queues else f", not on queue {record.queue!r}"
                found.setdefault(code, []).append(f"{worker.worker_id}{serves}")
    if not found:
        return f"no running worker has {record.workflow!r}"
    told = [f"{code} ({', '.join(who[:NAMED_MAX])}{_more(who)})" for code, who in sorted(found.items())]
    return f"running workers have {', '.join(told)}"


def _more(who: list[str]) -> str:
    return f" and {len(who) - NAMED_MAX} more" if len(who) > NAMED_MAX else ""
