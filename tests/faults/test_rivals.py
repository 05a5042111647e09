"""Two workers that are told of the same runs, over and over."""

from __future__ import annotations

from functools import partial

from tests.faults.audit import journal_findings
from tests.faults.ledger import repeated_attempts
from tests.faults.place import Place, eventually
from tests.faults.shop import several, signalled
from tidewheel.broker.work_items import RunHint, to_workers
from tidewheel.sdk.handle import Handle
from tidewheel.store.append import Append, Signalled
from tidewheel.store.records import RunRef

RUNS, ROUNDS, HINTS = 6, 32, 400


async def told_over_and_over(place: Place) -> None:
    """Start runs with two workers, and publish the very same hint of each hundreds of times."""
    busy = [await place.client.start(several, f"busy{number}", ROUNDS) for number in range(RUNS)]
    waiting = [
        await place.client.start(signalled, f"wait{number}", ROUNDS, run_id=f"wait{number}")
        for number in range(RUNS)
    ]
    hints = [
        to_workers(RunHint(namespace="default", run_id=one.run_id), "default") for one in [*busy, *waiting]
    ]
    for round_ in range(ROUNDS):
        # No hint but the many that follow, which both workers get at the same time.
        await place.store.append([_signal(one, round_) for one in waiting])
        await place.broker.publish(hints * (HINTS // ROUNDS + 1))
        await eventually(partial(_has_steps, place, (round_ + 1) * RUNS), "a round")
    for handle in [*busy, *waiting]:
        assert await handle.result(timeout=30) == ROUNDS


def _signal(handle: Handle[int], round_: int) -> Append:
    signal = Signalled(name="go", payload=round_, key=f"round={round_}")
    return Append(run=RunRef("default", handle.run_id), facts=(signal,))


def _has_steps(place: Place, count: int) -> bool:
    """Tell whether the runs that wait for signals have come this far."""
    return sum(line.name.startswith("wait") for line in place.ledger.lines()) >= count


async def test_two_workers_with_the_same_run_take_turns(place: Place) -> None:
    """However often both are told, a run's journal is whole and each body is executed once."""
    await place.serve(keeper=False)
    await place.serve()

    await told_over_and_over(place)

    lines = place.ledger.lines()
    assert len(lines) == 2 * RUNS * ROUNDS
    assert list(journal_findings(place.folder)) == []
    assert repeated_attempts(lines) == []
