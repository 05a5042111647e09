"""Snapshots: written over what they were computed from and nothing else, read back as they were."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import pytest

from tests.conformance.store.driving import Clock, Run, a_start, done, ends, resumes, task, waits
from tests.conformance.store.inside import Inside
from tidewheel.journal.snapshot import Failure, RunSnapshot, StepSnapshot, empty
from tidewheel.store.append import Append
from tidewheel.store.protocol import Store
from tidewheel.store.records import RunRef
from tidewheel.store.snapshots import INLINE_STEPS_MAX, Asked, Held, going_on, in_place_of

MANY = 3 * INLINE_STEPS_MAX


def a_step(number: int, status: str = "RUNNING") -> StepSnapshot:
    """Return a step like any other."""
    return StepSnapshot(step_id=f"step-{number}", name="charge", status=status)  # type: ignore[arg-type]  # as the tests say it


def a_snapshot(run_id: str, seq: int, steps: Sequence[StepSnapshot] = ()) -> RunSnapshot:
    """Return a snapshot that has seen event *seq*."""
    return RunSnapshot(
        run_id=run_id, workflow="shop", status="RUNNING", last_event_seq=seq, steps=tuple(steps)
    )


async def held(store: Store, run: Run, *step_ids: str) -> Held:
    """Load the snapshot of *run* to go on from."""
    (found,) = await store.snapshots.load([Asked(run.ref, step_ids)])
    assert found is not None
    return found


async def write(store: Store, run: Run, snapshot: RunSnapshot) -> bool:
    """Go on from what is there to *snapshot*, which has all the steps that it speaks of."""
    before = await held(store, run, *(step.step_id for step in snapshot.steps))
    (written,) = await store.snapshots.save([going_on(before, snapshot)])
    return written


async def test_a_run_without_a_snapshot_is_gone_on_from_nothing(store: Store, run: Run) -> None:
    """It has seen no event; a run that does not exist has nothing to go on from."""
    found = await store.snapshots.load([Asked(run.ref), Asked(RunRef("default", "none"))])

    assert [one and (one.snapshot, one.is_new) for one in found] == [(empty("r"), True), None]
    assert await store.snapshots.read(run.ref) is None


async def test_a_snapshot_is_read_back_as_it_was(store: Store, run: Run) -> None:
    """Whatever is in it; also what ``jsonb`` has no place for."""
    at = dt.datetime(2026, 3, 1, 12, 0, 0, 250_001, dt.UTC)
    failed = StepSnapshot(
        step_id="charge",
        status="FAILED",
        started_at=at,
        error=Failure(
            code="Broken", message="a NUL \0\0, a \N{SYMBOL FOR NULL}0, \\u0000, 雪", retryable=True
        ),
    )
    snapshot = RunSnapshot(
        run_id="r",
        workflow="shop",
        status="FAILED",
        last_event_seq=7,
        steps=(failed, a_step(1)),
        failed_steps=1,
        started_at=at,
        root_cause=Failure(code="\0", message="\N{SYMBOL FOR NULL}"),
        stale=True,
    )

    assert await write(store, run, snapshot)

    assert await store.snapshots.read(run.ref) == snapshot
    assert (await held(store, run)).snapshot == snapshot


async def test_of_two_who_go_on_from_the_same_one_wins(store: Store, run: Run) -> None:
    """The other is told, and finds what the first has written."""
    first, second = await held(store, run), await held(store, run)
    changes = [going_on(one, a_snapshot("r", seq)) for one, seq in ((first, 3), (second, 4))]
    assert await store.snapshots.save([changes[0]]) == [True]
    assert await store.snapshots.save([changes[1]]) == [False]
    third, fourth = await held(store, run), await held(store, run)

    later = [going_on(one, a_snapshot("r", seq)) for one, seq in ((third, 5), (fourth, 6))]

    assert await store.snapshots.save([later[1]]) == [True]
    assert await store.snapshots.save([later[0]]) == [False]
    assert (await held(store, run)).snapshot.last_event_seq == 6


async def test_a_snapshot_that_is_not_there_cannot_be_gone_on_from(store: Store, run: Run) -> None:
    """Nor is one made where there was one when it was computed."""
    before = await held(store, run)
    lost = Held(key=before.key, run=run.ref, snapshot=a_snapshot("r", 3))

    assert await store.snapshots.save([going_on(lost, a_snapshot("r", 4))]) == [False]
    assert await store.snapshots.read(run.ref) is None


async def test_many_runs_are_loaded_and_saved_at_once(store: Store) -> None:
    """Each is answered in its place, and one that lost does not spoil the others."""
    refs = [RunRef("default", f"r-{number}") for number in range(50)]
    await store.append([Append(run=ref, start=a_start()) for ref in refs])
    loaded = await store.snapshots.load([Asked(ref) for ref in refs])
    changes = [going_on(one, a_snapshot(one.run.run_id, 1)) for one in loaded if one]
    assert await store.snapshots.save(changes[:1]) == [True]

    written = await store.snapshots.save(changes[::-1])

    assert written == [True] * 49 + [False]
    read = [await store.snapshots.read(ref) for ref in refs]
    assert read == [a_snapshot(ref.run_id, 1) for ref in refs]


async def test_a_replaced_snapshot_is_not_gone_on_from_any_more(store: Store, run: Run) -> None:
    """Even if the new one has seen the same events: what it was made of may have been wrong."""
    await write(store, run, a_snapshot("r", 3, [a_step(1)]))
    before = await held(store, run)
    assert await store.snapshots.save([in_place_of(before, a_snapshot("r", 3, [a_step(2)]))]) == [True]

    assert await store.snapshots.save([going_on(before, a_snapshot("r", 4, [a_step(1)]))]) == [False]
    assert await store.snapshots.read(run.ref) == a_snapshot("r", 3, [a_step(2)])


async def test_a_run_can_be_marked_without_a_new_event(store: Store, run: Run) -> None:
    """A stale snapshot has seen what it has seen."""
    await write(store, run, a_snapshot("r", 3))
    stale = RunSnapshot(run_id="r", workflow="shop", status="RUNNING", last_event_seq=3, stale=True)

    assert await write(store, run, stale)

    assert await store.snapshots.read(run.ref) == stale


async def test_the_steps_of_a_long_run_keep_their_order(store: Store, run: Run) -> None:
    """Whether they are in its row or have rows of their own, and whichever of them change."""
    steps = [a_step(number) for number in range(MANY)]
    await write(store, run, a_snapshot("r", 1, steps))
    changed = [3, MANY - 2, INLINE_STEPS_MAX, MANY, MANY + 1]
    asked = [a_step(number, "SUCCESS") for number in changed]
    before = await held(store, run, *(step.step_id for step in asked))

    known = {step.step_id: step for step in (*before.snapshot.steps, *asked)}
    after = a_snapshot("r", 2, list(known.values()))
    (written,) = await store.snapshots.save([going_on(before, after)])

    assert written
    expected = [a_step(number, "SUCCESS" if number in changed else "RUNNING") for number in range(MANY + 2)]
    assert await store.snapshots.read(run.ref) == a_snapshot("r", 2, expected)


async def test_going_on_costs_the_same_however_long_a_run_is(store: Store, run: Run) -> None:
    """What is read and written is what is in the row, and the later steps that were asked for."""
    await write(store, run, a_snapshot("r", 1, [a_step(number) for number in range(MANY)]))

    before = await held(store, run, f"step-{MANY - 1}", "step-0", "none")

    assert len(before.snapshot.steps) == INLINE_STEPS_MAX + 1
    assert before.later == {f"step-{MANY - 1}": MANY - 1}
    assert before.step_count == MANY


async def test_a_long_snapshot_is_replaced_whole(store: Store, run: Run) -> None:
    """Steps that should not be there go, also those with rows of their own."""
    await write(store, run, a_snapshot("r", 1, [a_step(number) for number in range(MANY)]))
    right = a_snapshot("r", 1, [a_step(number, "SUCCESS") for number in range(1, MANY - 5)])

    assert await store.snapshots.save([in_place_of(await held(store, run), right)]) == [True]

    assert await store.snapshots.read(run.ref) == right


async def looked(store: Store, clock: Clock, limit: int = 100, names: Sequence[str] = ()) -> list[str]:
    """Return the runs that are behind, page after page."""
    found: list[str] = []
    after: bytes | None = None
    for _ in range(100):
        page = await store.snapshots.look(
            "default", after=after, limit=limit, quiet_since=clock.now, projections=names
        )
        found += [one.run.run_id for one in page.behind]
        after = page.next_after
        if after is None:
            return found
    raise AssertionError("the look does not end")


def publish_all(inside: Inside) -> None:
    """Take what the bus is owed out of the outbox, as a relay does that has published it."""
    inside.clear_outbox()


@pytest.mark.parametrize("limit", [1, 2, 100])
async def test_a_look_finds_the_runs_that_are_behind(inside: Inside, clock: Clock, limit: int) -> None:
    """Those whose latest public event their snapshot has not seen, and those that are stale."""
    runs = {name: Run(inside.store, name) for name in ("none", "behind", "level", "ahead", "stale")}
    for run in runs.values():
        await run.start()
    await Run(inside.store, "elsewhere", "other").start()
    await write(inside.store, runs["level"], a_snapshot("level", 0))
    await write(inside.store, runs["ahead"], a_snapshot("ahead", 9))
    await write(inside.store, runs["stale"], RunSnapshot(run_id="stale", last_event_seq=0, stale=True))
    await write(inside.store, runs["behind"], a_snapshot("behind", 0))
    await runs["behind"].move(task(), waits("0"))
    await runs["behind"].move(resumes("0"), ends(), facts=[done("0")])
    publish_all(inside)
    clock.advance(1)

    assert sorted(await looked(inside.store, clock, limit)) == ["ahead", "behind", "none", "stale"]


async def test_a_run_whose_events_are_still_to_come_is_not_behind(inside: Inside, clock: Clock) -> None:
    """One to which something was just appended, or whose events were not all published."""
    owed, fresh = Run(inside.store, "owed"), Run(inside.store, "fresh")
    await owed.start()
    clock.advance(1)
    assert await looked(inside.store, clock) == []
    publish_all(inside)
    await fresh.start()
    publish_all(inside)

    assert await looked(inside.store, clock) == ["owed"]
    clock.advance(1)
    assert await looked(inside.store, clock) == ["owed", "fresh"]


async def test_a_run_is_behind_if_a_projection_is(inside: Inside, clock: Clock) -> None:
    """Also a projection that was added after the run had ended."""
    run = Run(inside.store, "r")
    await run.start()
    await write(inside.store, run, a_snapshot("r", 0))
    publish_all(inside)
    clock.advance(1)

    assert await looked(inside.store, clock) == []
    assert await looked(inside.store, clock, names=["sales"]) == ["r"]


async def test_snapshots_go_with_their_run(inside: Inside, clock: Clock) -> None:
    """A run that is purged leaves nothing behind, and its id has no snapshot when it is used again."""
    before = inside.row_counts()
    run = Run(inside.store, "r")
    await run.start()
    await run.move(ends())
    await write(inside.store, run, a_snapshot("r", 1, [a_step(number) for number in range(MANY)]))
    clock.advance(3600)

    assert await inside.store.purge("default", ended_before=clock.now, limit=10) == 1

    assert inside.row_counts() == before
    await Run(inside.store, "r").start()
    assert (await held(inside.store, run)).is_new


async def test_projectors_know_of_each_other(store: Store, clock: Clock) -> None:
    """Those who said a moment ago that they are alive and did not leave, in their namespace."""
    await store.snapshots.attend("default", "b", 5.0)
    await store.snapshots.attend("other", "z", 5.0)

    assert await store.snapshots.attend("default", "a", 3.0) == ["a", "b"]
    clock.advance(3)
    assert await store.snapshots.attend("default", "c", 5.0) == ["b", "c"]
    await store.snapshots.leave("default", "b")
    assert await store.snapshots.attend("default", "c", 5.0) == ["c"]
    clock.advance(10)
    assert await store.snapshots.attend("default", "c", 5.0) == ["c"]
