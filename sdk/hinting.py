"""From what the store answered to what the broker has to carry.

The store says whom to wake after a commit; this says it in messages. Clients, workers and the
keeper all publish what stands here and nothing else. Losing any of it only costs time.
"""

from __future__ import annotations

from tidewheel.broker.message import Publication
from tidewheel.broker.topology import alone_queue, work_queue
from tidewheel.broker.work_items import RunEnded, RunHint, TaskHint, to_client, to_queue, to_workers
from tidewheel.store.append import Appended, Hint


def publication_of(hint: Hint) -> Publication:
    """Address *hint* to the workers that can follow it."""
    namespace, run_id = hint.run
    if hint.path is None and hint.alone:
        item = RunHint(namespace=namespace, run_id=run_id, alone=True)
        return to_queue(item, alone_queue(work_queue(namespace, hint.queue)))
    if hint.path is None:
        return to_workers(RunHint(namespace=namespace, run_id=run_id), hint.queue)
    task = TaskHint(namespace=namespace, run_id=run_id, path=hint.path, attempt=hint.attempt)
    return to_workers(task, hint.queue)


def publications(appended: Appended, *, own_queue: str | None = None) -> list[Publication]:
    """Return all that has to be published after a commit: hints, then who is told of ended runs.

    A client passes its *own_queue* of replies: what it has just read in the answer it need not be told.
    """
    wanted = [publication_of(hint) for hint in appended.hints]
    for ended in appended.ended:
        namespace, run_id = ended.run
        item = RunEnded(namespace=namespace, run_id=run_id, last_seq=ended.last_seq)
        wanted += [to_client(item, queue) for queue in ended.reply_to if queue != own_queue]
    return wanted
