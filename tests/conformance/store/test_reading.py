"""Reading: what was written comes back exactly, no more is read than was asked for, and damage is found."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any

import msgspec
import pytest

from tests.conformance.store.driving import Clock, Run, done, ends, ok, resumes, signal, task, waits
from tests.conformance.store.inside import Inside
from tidewheel.journal import events as ev
from tidewheel.journal.codec import decode, encode
from tidewheel.store.append import Cancelled, Park
from tidewheel.store.errors import Unreadable
from tidewheel.store.memory import MemoryStore
from tidewheel.store.postgres.store import PostgresStore
from tidewheel.store.protocol import RunFilter, Store
from tidewheel.store.sqlite.store import SqliteStore

VALUES: list[Any] = [
    "a\x00b",
    -0.0,
    1e16,
    1.5e300,
    5e-324,
    0.1 + 0.2,
    2**63 - 1,
    {"z": 1, "a": {"y": [], "b": {}}, "": None},
    "\u2028 \ufeff \U0001f30a e\u0301 \u00e9",
    "x" * (2 * 1024 * 1024),
    [True, False, None, 0, 0.0, "", [], {}],
]


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
async def test_a_payload_comes_back_as_it_went_in(run: Run, value: Any) -> None:
    """Byte for byte: what is replayed is what ran."""
    await run.move(task(input=[value]), waits("0"))
    await run.tell(done(value=value), signal(payload=value))

    events = [entry.event for entry in await run.journal()]
    loaded = [entry.event for entry in (await run.see()).entries]

    assert loaded == events
    written = msgspec.json.encode(value)
    assert isinstance(events[1], ev.InvokeScheduled)
    assert msgspec.json.encode(events[1].input[0]) == written
    assert isinstance(events[4], ev.InvokeCompleted)
    assert msgspec.json.encode(events[4].result.ok) == written
    assert isinstance(events[5], ev.SignalDelivered)
    assert msgspec.json.encode(events[5].payload) == written
    assert decode(encode(events)) == events


async def test_times_come_back_to_the_microsecond(run: Run, clock: Clock) -> None:
    """Deadlines and the journal's times are compared with each other: nothing may be rounded."""
    clock.now = dt.datetime(2026, 3, 1, 12, 0, 0, 123457, tzinfo=dt.UTC)
    fire_at = dt.datetime(2199, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC)

    answer = await run.move(ev.TimerScheduled(promise_id="0", fire_at=fire_at), waits("0"))

    loaded = await run.see()
    assert answer.now == loaded.now == loaded.entries[-1].at == loaded.run.updated_at == clock.now
    assert [timer.fire_at for timer in loaded.timers] == [fire_at]


async def test_a_run_that_is_not_there_is_none(store: Store) -> None:
    """Whatever is asked of it."""
    ref = Run(store, "nobody").ref

    assert await store.find(ref) is None
    assert await store.load(ref) is None
    assert await store.load_step(ref, "0") is None
    assert await store.journal(ref) is None


async def test_a_step_is_read_with_its_schedule(run: Run) -> None:
    """Its executor needs no more than that."""
    schedule = task("0", input=[{"a": 1}], dispatch="queued", queue="heavy")
    await run.move(schedule, waits("0"))

    loaded = await run.store.load_step(run.ref, "0")

    assert loaded is not None
    assert (loaded.event, loaded.step.path, loaded.run.run_id) == (schedule, "0", "r")
    assert await run.store.load_step(run.ref, "1") is None


async def test_only_what_follows_is_read(run: Run) -> None:
    """A worker that has the run in memory pays for what is new, not for what is old."""
    await run.move(*[ev.StateSet(key=str(number)) for number in range(50)])
    store = run.store
    assert isinstance(store, MemoryStore | SqliteStore | PostgresStore)
    before = store.counters.events_read

    loaded = await store.load(run.ref, after=47)
    nothing = await store.load(run.ref, after=50)

    assert loaded is not None
    assert nothing is not None
    assert [entry.run_seq for entry in loaded.entries] == [48, 49, 50]
    assert nothing.entries == []
    assert store.counters.events_read - before == 3


async def test_an_older_segment_is_not_read_again(run: Run) -> None:
    """Where the segment that was in memory is closed, the new one is read from its start."""
    await run.move(ev.ExecutionContinued(next_position=0), ev.ExecutionStarted(), ev.StateSet(key="a"))

    loaded = await run.store.load(run.ref, after=0)
    rest = await run.store.load(run.ref, after=2)

    assert loaded is not None
    assert rest is not None
    assert [entry.run_seq for entry in loaded.entries] == [2, 3]
    assert [entry.run_seq for entry in rest.entries] == [3]


async def test_a_journal_is_read_from_anywhere(run: Run) -> None:
    """Whoever follows a run asks for what comes after the last event it knows."""
    await run.move(ev.ExecutionContinued(next_position=0), ev.ExecutionStarted(), ev.StateSet(key="a"))

    entries = await run.store.journal(run.ref, after=1)

    assert entries is not None
    assert [entry.run_seq for entry in entries] == [2, 3]
    assert await run.store.journal(run.ref, after=99) == []


async def test_what_was_read_is_the_readers_own(run: Run) -> None:
    """Changing it changes nothing in the store."""
    await run.move(task(), waits("0"))
    loaded = await run.see()

    loaded.run.phase = "Completed"
    loaded.steps[0].owner = "somebody"

    assert (await run.record()).phase == "Blocked"
    assert (await run.step()).owner == "worker-1"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"data": b'[{"type":"StateSet","key":'}, ""),
        ({"data": b'[{"type":"StateSet","key":"a","value":7}]'}, ""),
        ({"data": b'[{"type":"StateFrozen"},{"type":"StateSet","key":"b"}]'}, "upgrade the workers"),
        ({"data": b'[{"type":"StateSet.2"},{"type":"StateSet","key":"b"}]'}, "upgrade the workers"),
        ({"codec": "zstd"}, "zstd"),
    ],
    ids=["damaged", "too few", "unknown type", "newer form", "unknown codec"],
)
async def test_a_row_that_cannot_be_read_is_named(
    inside: Inside, run: Run, changes: dict[str, Any], reason: str
) -> None:
    """The run is left as it is, and the others work."""
    await run.move(ev.StateSet(key="a", value=1), ev.StateSet(key="b", value=2))
    await run.move(ev.StateSet(key="c", value=3))
    other = Run(run.store, "other")
    await other.start()
    inside.replace_passage(run.ref, 1, **changes)

    with pytest.raises(Unreadable) as loading:
        await run.store.load(run.ref)
    with pytest.raises(Unreadable):
        await run.store.journal(run.ref)

    assert (loading.value.run_id, loading.value.run_seq) == ("r", 1)
    assert reason in str(loading.value)
    assert (await run.record()).last_seq == 3
    assert await other.story() == ["ExecutionStarted"]
    later = await run.store.journal(run.ref, after=2)
    assert later is not None
    assert [entry.run_seq for entry in later] == [3]


async def test_a_row_that_names_its_place_does_so_exactly(inside: Inside, run: Run) -> None:
    """Of several events that were written together the one that cannot be read is named."""
    await run.move(ev.StateSet(key="a", value=1), ev.StateSet(key="b", value=2))
    changed = b'[{"type":"StateSet","key":"a"},{"type":"StateSet"}]'
    inside.replace_passage(run.ref, 1, data=changed)

    with pytest.raises(Unreadable, match="field 'key' of event 'StateSet'") as caught:
        await run.store.load(run.ref)

    assert caught.value.run_seq == 2


@pytest.mark.parametrize("after", range(-1, 7))
async def test_a_journal_can_be_read_from_the_middle_of_a_row(run: Run, after: int) -> None:
    """Which events were written together is nothing to who reads them."""
    await run.move(ev.StateSet(key="a"), ev.StateSet(key="b"), ev.StateSet(key="c"))
    await run.move(ev.StateSet(key="d"), ev.StateSet(key="e"))

    entries = await run.store.journal(run.ref, after=after)

    assert entries is not None
    assert [entry.run_seq for entry in entries] == list(range(after + 1, 6))
    assert entries == (await run.journal())[after + 1 :]


async def test_a_run_that_cannot_be_read_can_be_parked(inside: Inside, run: Run) -> None:
    """Parking and facts do not need the journal."""
    await run.move(ev.StateSet(key="a"))
    inside.replace_passage(run.ref, 1, data=b'[{"type":"StateFrozen"}]')

    await run.mark(Park(kind="unreadable", reason="event 1"))
    await run.tell(signal())

    record = await run.record()
    assert (record.parked, record.last_seq) == ("unreadable", 2)


async def test_runs_are_listed_newest_first_in_pages(store: Store, clock: Clock) -> None:
    """The last key of a page is where the next begins; each run is on one page."""
    for number in range(7):
        clock.advance(1)
        await Run(store, f"r{number}").start()
    await Run(store, "elsewhere", "other").start()

    pages = []
    before: bytes | None = None
    for _ in range(3):
        page = await store.runs(RunFilter(namespace="default", limit=3, before=before))
        pages.append([record.run_id for record in page])
        before = page[-1].key

    assert pages == [["r6", "r5", "r4"], ["r3", "r2", "r1"], ["r0"]]


async def test_runs_are_filtered(store: Store, clock: Clock) -> None:
    """By workflow, by the contract's word for their status, and by whether they are open."""
    for number, (name, workflow) in enumerate([("a", "shop"), ("b", "mail"), ("c", "shop"), ("d", "shop")]):
        clock.now += dt.timedelta(seconds=number)
        await Run(store, name).start(workflow=workflow, admission="queued" if name == "d" else "now")
    await Run(store, "e", "other").start()
    finished, cancelling = Run(store, "a"), Run(store, "c")
    await finished.see()
    await finished.move(ends())
    await cancelling.see()
    await cancelling.move(task(), waits("0"))
    await cancelling.tell(Cancelled())

    async def listed(**which: Any) -> list[str]:
        return [record.run_id for record in await store.runs(RunFilter(namespace="default", **which))]

    assert await listed() == ["d", "c", "b", "a"]
    assert await listed(workflow="shop") == ["d", "c", "a"]
    assert await listed(status="COMPLETED") == ["a"]
    assert await listed(status="RUNNING") == ["c", "b"]
    assert await listed(status="PENDING") == ["d"]
    assert await listed(status="NONSENSE") == []
    assert await listed(open_only=True) == ["d", "c", "b"]
    assert await listed(open_only=True, workflow="shop", limit=1) == ["d"]


async def test_a_cancel_that_comes_with_a_change_is_not_lost(run: Run) -> None:
    """Whoever waits in a loop and is told to stop at the moment of a commit stops."""
    for _ in range(20):
        waiting = asyncio.create_task(_wait_for_ever(run.store))
        await asyncio.sleep(0.01)
        await run.tell(signal())
        # The change is on its way to the task now; so is the cancel.
        for _ in range(3):
            await asyncio.sleep(0)
        waiting.cancel()

        done, _ = await asyncio.wait([waiting], timeout=5)

        assert done, "the cancel was swallowed"


async def _wait_for_ever(store: Store) -> None:
    while True:
        await store.changed(30)


async def test_a_change_is_noticed(run: Run) -> None:
    """Whoever waits goes on when something was written, long before the time is up."""
    waiting = asyncio.create_task(run.store.changed(30))
    await asyncio.sleep(0.05)

    await run.tell(signal())

    await asyncio.wait_for(waiting, 5)


async def test_waiting_for_a_change_has_an_end(store: Store) -> None:
    """Nothing happens, and the caller goes on all the same."""
    await asyncio.wait_for(store.changed(0.02), 5)


async def test_the_clock_is_told(store: Store, clock: Clock) -> None:
    """All deadlines are measured by it."""
    assert await store.now() == clock.now


async def test_a_step_costs_few_round_trips(run: Run, request: pytest.FixtureRequest) -> None:
    """Completing a step and asking for the next is one transaction, which reads no event."""
    await run.see()
    await run.move(task("0"), waits("0"))
    store = run.store
    assert isinstance(store, MemoryStore | SqliteStore | PostgresStore)
    before = msgspec.structs.replace(store.counters)

    await run.move(resumes("0"), task("1"), waits("1"), facts=[done("0", value=1)])

    after = store.counters
    # One that does not remember the run needs one to lock and look, and one to write and commit.
    asks = request.node.callspec.params["inside"] == "postgres-asking"
    assert after.round_trips - before.round_trips == (2 if asks else 1)
    assert after.commits - before.commits == 1
    assert after.events_read - before.events_read == 0
    assert after.events_written - before.events_written == 5


async def test_results_are_equal_whichever_way_they_are_read(run: Run) -> None:
    """The segment, the journal and a part of it are the same entries."""
    await run.move(task("0"), waits("0"))
    await run.move(resumes("0"), ends(ok(1).ok), facts=[done("0")])

    whole = await run.journal()
    loaded = await run.store.load(run.ref)

    assert loaded is not None
    assert loaded.entries == whole
    assert await run.store.journal(run.ref, after=2) == whole[3:]


async def test_whoever_knows_the_run_is_told_of_inline_steps_only(run: Run) -> None:
    """A thousand queued steps are not read again with each of their results."""
    await run.move(task("0"), task("1", dispatch="queued"), waits("0", "1"))

    whole = await run.store.load(run.ref)
    rest = await run.store.load(run.ref, after=3)

    assert whole is not None
    assert rest is not None
    assert [step.path for step in whole.steps] == ["0", "1"]
    assert [step.path for step in rest.steps] == ["0"]
