"""The run queue: letting queued runs begin, as far as the limits of their queues allow it.

Any number of processes may do it at the same time, as often as they like, and none of them keeps anything in
mind. Which runs may be admitted is read without a lock; then each is asked to be (``Admit``), and the one
write path decides under the lock of the limit: a run that was admitted or cancelled meanwhile, or for which
there is no room any more, is left as it is.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from tidewheel.store.append import Admit, Append, Appended
from tidewheel.store.errors import CommitUnknown
from tidewheel.store.protocol import Store
from tidewheel.store.records import RunRef

#: Runs that are admitted in one go.
BATCH_MAX: Final = 100

#: The run was admitted; nobody can say whether it was; it was not, since there is no room or no need.
DequeueStatus: TypeAlias = Literal["STARTED", "FAILED", "SKIPPED"]


class Dequeued(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a queued run; ``answer`` says whom to wake, if it was admitted."""

    run: RunRef
    status: DequeueStatus
    answer: Appended | None = None

    @property
    def run_id(self) -> str:
        """The run's id, as the contract has it."""
        return self.run.run_id


async def dequeue_and_start(store: Store, *, batch_max: int = BATCH_MAX) -> list[Dequeued]:
    """Admit queued runs, of each queue the oldest first, at most *batch_max*, and say what became of them.

    Whoever calls it publishes the hints in the answers. Raises ``StoreUnavailable``; then nothing was done.
    """
    waiting = await store.admission.waiting(batch_max=batch_max)
    if not waiting:
        return []
    try:
        answers = await store.append([Append(run=one.run, mark=Admit(queue=one.queue)) for one in waiting])
    except CommitUnknown:
        # Those that were admitted are owed a turn, of which a keeper reminds their workers.
        return [Dequeued(run=one.run, status="FAILED") for one in waiting]
    return [
        Dequeued(run=one.run, status="STARTED" if answer.admitted else "SKIPPED", answer=answer)
        for one, answer in zip(waiting, answers, strict=True)
    ]
