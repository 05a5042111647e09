"""From what the store answered to what the broker has to carry.

The store says whom to wake after a commit; this says it in messages. Clients, workers and the
keeper all publish what stands here and nothing else. Losing any of it only costs time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from tidewheel.broker.message import Publication
from tidewheel.broker.topology import alone_queue, work_queue
from tidewheel.broker.work_items import (
    NOTHING,
    RunEnded,
    RunHint,
    RunsEnded,
    TaskHint,
    to_client,
    to_queue,
    to_workers,
)
from tidewheel.journal.events import Event
from tidewheel.store.append import Appended, Ended, Hint

#: Runs that one message tells a client of, and the largest event that goes with it, in bytes.
TOLD_MAX: Final = 100
EVENT_MAX: Final = 16 * 1024

_encode = msgspec.json.Encoder().encode


def publication_of(hint: Hint) -> Publication:
    """Address *hint* to the workers that can follow it."""
    namespace, run_id = hint.run
    if hint.path is None and hint.alone:
        item = RunHint(namespace=namespace, run_id=run_id, alone=True)
        return to_queue(item, alone_queue(work_queue(namespace, hint.queue)), hint.trace)
    if hint.path is None:
        sketch = NOTHING if hint.sketch is None else msgspec.Raw(hint.sketch)
        return to_workers(RunHint(namespace=namespace, run_id=run_id, sketch=sketch), hint.queue, hint.trace)
    task = TaskHint(namespace=namespace, run_id=run_id, path=hint.path, attempt=hint.attempt)
    return to_workers(task, hint.queue, hint.trace)


def publications(answers: Iterable[Appended], *, own_queue: str | None = None) -> list[Publication]:
    """Return all that has to be published after commits: hints, then who is told of ended runs.

    A client passes its *own_queue* of replies: what it has just read in the answer it need not be told.
    """
    wanted: list[Publication] = []
    told: dict[str, list[RunEnded]] = {}
    for answer in answers:
        wanted += [publication_of(hint) for hint in answer.hints]
        for ended in answer.ended:
            queues = [queue for queue in ended.reply_to if queue != own_queue]
            if queues:
                item = _told(ended)
                for queue in queues:
                    told.setdefault(queue, []).append(item)
    for queue, runs in told.items():
        for first in range(0, len(runs), TOLD_MAX):
            wanted.append(to_client(RunsEnded(runs=runs[first : first + TOLD_MAX]), queue))
    return wanted


def _told(ended: Ended) -> RunEnded:
    namespace, run_id = ended.run
    encoded = b"" if ended.event is None else _encode(ended.event)
    event = msgspec.Raw(encoded) if 0 < len(encoded) <= EVENT_MAX else NOTHING
    return RunEnded(namespace=namespace, run_id=run_id, last_seq=ended.last_seq, event=event)


_decode = msgspec.json.Decoder(Event).decode


def event_of(ended: RunEnded) -> Event | None:
    """Return the event that ended a run, if the reply has it."""
    return _decode(ended.event) if bytes(ended.event) else None
