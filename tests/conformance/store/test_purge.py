"""Purging: a run that ended long ago leaves nothing behind, and no other run is touched."""

from __future__ import annotations

import datetime as dt

from tests.conformance.store.driving import (
    NOW,
    Clock,
    Run,
    began,
    done,
    ends,
    ok,
    resumes,
    signal,
    task,
    waits,
)
from tests.conformance.store.inside import Inside
from tidewheel.journal import events as ev
from tidewheel.store.append import ChildStart, Fate, Resolved
from tidewheel.store.protocol import Store

HOUR = dt.timedelta(hours=1)


async def lived(store: Store, name: str, *, until_end: bool, namespace: str = "default") -> Run:
    """Make a run that leaves rows in every table."""
    run = Run(store, name, namespace)
    await run.start(1, idempotency_key=f"key-{name}")
    await run.move(
        task("0", key="charge"),
        task("1", dispatch="queued"),
        ev.TimerScheduled(promise_id="2", fire_at=NOW + HOUR),
        ev.PromiseCreated(promise_id="3", name="approval"),
        waits("0", "1", "2", "3"),
    )
    await run.tell(signal(), Resolved(name="approval", result=ok(), key="p"), began("1"))
    await run.see()
    if until_end:
        await run.move(resumes("0"), ends(), facts=[done("0")])
    return run


async def test_a_purged_run_leaves_nothing_behind(inside: Inside, clock: Clock) -> None:
    """Every table is as empty as before; id and idempotency key can be used again."""
    before = inside.row_counts()
    run = await lived(inside.store, "r", until_end=True)
    during = inside.row_counts()
    clock.advance(3600)

    purged = await inside.store.purge("default", ended_before=clock.now, limit=10)

    assert purged == 1
    assert inside.row_counts() == before
    assert all(count == 0 for count in before.values())
    assert {"runs", "journal", "facts_seen", "step_ids", "outbox"} <= {
        name for name in during if during[name]
    }
    assert await inside.store.journal(run.ref) is None
    assert not (await run.start(2, idempotency_key="key-r")).existed


async def test_open_runs_young_runs_and_other_namespaces_are_spared(inside: Inside, clock: Clock) -> None:
    """Only what ended before the given time, in the given namespace, is deleted."""
    store = inside.store
    open_run = await lived(store, "open", until_end=False)
    other = await lived(store, "other", until_end=True, namespace="elsewhere")
    await lived(store, "old", until_end=True)
    clock.advance(60)
    limit = clock.now
    young = await lived(store, "young", until_end=True)
    stories = [await run.story() for run in (open_run, other, young)]
    clock.advance(3600)

    purged = await store.purge("default", ended_before=limit, limit=10)

    assert purged == 1
    assert [await run.story() for run in (open_run, other, young)] == stories
    assert len((await open_run.see()).steps) == 2
    assert (await open_run.tell(done("0"))).verdicts[0].value == "written"


async def test_no_more_runs_are_purged_than_asked_for(store: Store, clock: Clock) -> None:
    """The rest waits for the next call: the oldest go first."""
    for number in range(40):
        run = Run(store, f"r{number}")
        await run.start()
        await run.move(ends())
        clock.advance(1)

    counts = [await store.purge("default", ended_before=clock.now, limit=18) for _ in range(4)]

    assert counts == [18, 18, 4, 0]


async def test_a_run_is_kept_until_its_children_are_gone(store: Store, clock: Clock) -> None:
    """Started again under its id, it would meet the old ones under theirs."""
    parent, child = Run(store, "p"), Run(store, "p:0")
    await parent.start()
    asked = task("0", kind="workflow", dispatch="queued")
    starts = {"0": ChildStart(workflow="mail", version="", digest="", queue="post")}
    await parent.move(asked, children=starts)
    await parent.move(ends())
    clock.advance(1)

    while_open = await store.purge("default", ended_before=clock.now, limit=10)
    await child.see()
    answer = await child.move(ends())
    clock.advance(1)
    after = [await store.purge("default", ended_before=clock.now, limit=10) for _ in range(3)]

    assert (while_open, answer.fate, after) == (0, Fate.COMMITTED, [1, 1, 0])
    assert await store.find(parent.ref) is None
    again = Run(store, "p")
    await again.start()
    started = await again.move(asked, children=starts)
    assert started.fate is Fate.COMMITTED
    assert await store.find(child.ref) is not None
