"""What the rows of a journal publish, each by itself: the same as the fold over the whole journal."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.conformance.store.driving import NOW, Run, began, done, ends, failed, ok, resumes, signal, task
from tests.conformance.store.inside import Inside
from tidewheel.journal import events as ev
from tidewheel.journal.public import PublicEvent, published
from tidewheel.store.append import Cancelled, ChildStart, Fact, Fate
from tidewheel.store.inline_steps import INLINE_MAX
from tidewheel.store.publishing import public_events

#: Keys that differ, repeat, and read like the paths of steps without a key.
KEYS = ("charge", "mail", "0", "1", "2", "7")


class Life:
    """One run to which things happen by chance."""

    def __init__(self, run: Run, seed: int, prefix: str = "") -> None:
        self._run = run
        self._chance = random.Random(seed)
        self._prefix = prefix
        self._position = 0
        self._open: list[str] = []

    async def live(self, moments: int) -> None:
        """Let *moments* things happen, then end."""
        for _ in range(moments):
            await self._chance.choice(
                [self._schedule, self._schedule, self._report, self._report, self._report, self._other]
            )()
        await self._move(ends() if self._chance.random() < 0.7 else ev.ExecutionFailed())

    async def _move(self, *events: ev.Event) -> None:
        await self._run.see()
        answer = await self._run.move(*events)
        assert answer.fate is Fate.COMMITTED

    async def _schedule(self) -> None:
        """Ask for a few steps, with and without keys."""
        events = []
        for _ in range(self._chance.randint(1, 3)):
            path = f"{self._prefix}{self._position}"
            self._position += 1
            key = self._chance.choice(KEYS)
            options: dict[str, Any] = {"key": key} if self._chance.random() < 0.6 else {}
            options["logical_attempt"] = self._chance.choice((1, 1, 2))
            events.append(task(path, function_name=f"f-{key}", **options))
            self._open.append(path)
        await self._move(*events)

    async def _report(self) -> None:
        """Let an attempt begin, fail, be parked or end; some of it is refused, as it may be."""
        if not self._open:
            return
        path = self._chance.choice(self._open)
        step = await self._run.step(path)
        attempt = step.attempt + (step.state != "started")
        facts: list[Fact] = [
            began(path, attempt),
            failed(path, attempt, retry_at=NOW, next_owner="worker-1"),
            failed(path, attempt) if self._chance.random() < 0.2 else began(path, attempt),
            done(path, attempt),
        ]
        await self._run.tell(*self._chance.sample(facts, self._chance.randint(1, 2)))
        if not await self._run.has_step(path):
            self._open.remove(path)

    async def _other(self) -> None:
        """Skip a step, continue as new, or let something arrive."""
        what = self._chance.randrange(5)
        if what == 0 and self._open:
            path = self._open.pop()
            await self._move(ev.StepSkipped(promise_id=path, result=ok(), reason="by hand"))
        elif what == 1:
            self._open.clear()
            first = (await self._run.journal())[0].event
            await self._move(ev.ExecutionContinued(next_position=self._position), first)
        elif what == 2:
            await self._move(ev.SignalAccepted(signal_id=f"s{self._chance.random()}", signal_name="go"))
        elif what == 3:
            await self._move(ev.RunPaused(), ev.RunResumed())
        else:
            await self._run.tell(signal(str(self._chance.random())), Cancelled())


async def told(inside: Inside, run: Run) -> list[PublicEvent]:
    """Return what the rows of the journal publish, each read by itself."""
    found: list[PublicEvent] = []
    entries, record = await run.journal(), await run.record()
    for row in inside.passages(run.ref):
        if row.public is not None:
            passage = entries[row.first_seq : row.last_seq + 1]
            first = entries[0].event
            assert isinstance(first, ev.ExecutionStarted)
            is_admitted = any(isinstance(entry.event, ev.RunAdmitted) for entry in passage)
            given = first.input if is_admitted else None
            found += public_events(record.ref, record.workflow, row.public, passage, given)
    return found


async def check(inside: Inside, run: Run) -> None:
    """Compare what the rows of *run* publish with the fold, and what the bus is owed with the rows."""
    rows = inside.passages(run.ref)
    record = await run.record()
    public = await told(inside, run)

    assert public == published(await run.journal(), *reversed(run.ref))
    assert inside.outbox(run.ref) == [(row.first_seq, row.last_seq) for row in rows if row.public is not None]
    assert record.prev_seq == public[-1].run_seq


@pytest.mark.parametrize("seed", range(12))
async def test_what_is_written_is_what_the_whole_journal_publishes(inside: Inside, seed: int) -> None:
    """Keys, chain and headers, whatever was repeated, retried, parked, skipped or continued."""
    run = Run(inside.store, f"r{seed}")
    await run.start(version="2" if seed % 2 else "")

    await Life(run, seed).live(moments=30)

    await check(inside, run)


@pytest.mark.parametrize("seed", range(4))
async def test_where_open_steps_are_kept_changes_nothing(
    inside: Inside, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the run's row, or all of them in rows of their own: the same is written, and the same published."""
    written = []
    for most in (INLINE_MAX, 0):
        monkeypatch.setattr("tidewheel.store.page.INLINE_MAX", most)
        run = Run(inside.store, f"r{most}")
        await run.start()
        await Life(run, seed).live(moments=30)
        await check(inside, run)
        events = [entry.event for entry in await run.journal()]
        written.append([event for event in events if not isinstance(event, ev.ExecutionStarted)])

    assert written[0] == written[1]


@pytest.mark.parametrize("seed", range(3))
async def test_a_childs_public_events_are_its_own(inside: Inside, seed: int) -> None:
    """Its paths go on from its parent's, and its chain begins with its own start."""
    parent, child = Run(inside.store, "p"), Run(inside.store, "p:0")
    await parent.start()
    asked = task("0", kind="workflow", dispatch="queued", key="child")
    await parent.move(asked, children={"0": ChildStart(workflow="mail", version="", digest="", queue="post")})

    await Life(child, seed, prefix="0.").live(moments=20)
    await parent.see()
    await parent.move(ends())

    await check(inside, parent)
    await check(inside, child)


async def test_a_platform_retry_publishes_no_second_start(inside: Inside, run: Run) -> None:
    """The second attempt of a step is no news to the outside."""
    await run.move(task())

    await run.tell(began(attempt=1))
    await run.tell(failed(attempt=1, retry_at=NOW, next_owner="worker-1"))
    await run.tell(began(attempt=2))
    await run.tell(done(attempt=2))

    assert [event.run_seq for event in await told(inside, run)] == [0, 2, 5]
    assert inside.outbox(run.ref) == [(0, 0), (2, 2), (5, 5)]
    await check(inside, run)


async def test_a_keyed_step_that_repeats_after_continue_as_new_has_its_own_key(
    inside: Inside, run: Run
) -> None:
    """Keys restart with a segment; public keys may not."""
    await run.move(task("0", key="charge"))
    await run.tell(done("0"))
    await run.see()
    await run.move(ev.ExecutionContinued(next_position=1), ev.ExecutionStarted(workflow="shop"))
    await run.move(task("1", key="charge"))
    await run.tell(done("1"))

    keys = [event.idempotency_key for event in await told(inside, run)]
    assert len(keys) == len(set(keys)) == 5
    await check(inside, run)


async def test_the_highest_attempt_of_a_repeated_key_counts(inside: Inside, run: Run) -> None:
    """A lower one in between does not make the higher one new."""
    for position, attempt in enumerate((2, 1, 2)):
        await run.move(task(str(position), key="charge", logical_attempt=attempt))
        await run.tell(done(str(position)))
        await run.see()
        following = ev.ExecutionStarted(workflow="shop")
        await run.move(ev.ExecutionContinued(next_position=position + 1), following)

    await check(inside, run)


async def test_a_commit_owes_the_bus_one_range(inside: Inside, run: Run) -> None:
    """However many events it publishes; a commit that publishes nothing owes nothing."""
    await run.move(task("0"), task("1"), ev.StateSet(key="a"))
    await run.move(ev.StateSet(key="b"))

    await run.tell(done("0"), done("1"))

    assert inside.outbox(run.ref) == [(0, 0), (5, 8)]


async def test_the_version_that_a_wait_tells_is_the_runs_from_there_on(inside: Inside) -> None:
    """A start by name has none: the first wait says which code began the run, later segments theirs."""
    run = Run(inside.store, "by-name")
    await run.start()
    before = await run.record()
    wait = ev.ExecutionAwaiting(waiting_on=["0"], kind="single", version="7", component_digest="d7")
    await run.move(task("0"), wait)
    pinned = await run.record()
    await run.tell(done("0"))
    await run.see()
    following = ev.ExecutionStarted(workflow="shop", version="8", component_digest="d8")
    await run.move(resumes("0"), ev.ExecutionContinued(next_position=1), following)
    await run.move(task("1"))
    await run.tell(done("1"))

    continued = await run.record()
    versions = [(one.version, one.digest) for one in (before, pinned, continued)]
    assert versions == [("", ""), ("7", "d7"), ("8", "d8")]
    await check(inside, run)
