"""Starting a run: once, however often and by whomever it is asked for."""

from __future__ import annotations

import asyncio

from tests.conformance.store.driving import Run, a_start, ends, waits
from tidewheel.journal import events as ev
from tidewheel.store.append import Append, Await, Hint
from tidewheel.store.protocol import RunFilter, Store
from tidewheel.store.records import RunRef


async def test_a_started_run_is_there_and_has_to_be_woken(store: Store) -> None:
    """The journal begins with the start, and somebody is told of it."""
    run = Run(store, "order-1")

    answer = await run.start({"sku": 7}, version="2", digest="abc")

    ((entry),) = await run.journal()
    assert isinstance(entry.event, ev.ExecutionStarted)
    assert entry.event.input == [{"sku": 7}]
    assert entry.at == entry.event.now == answer.now
    assert [(hint.run, hint.queue, hint.path, hint.alone) for hint in answer.hints] == [
        (run.ref, "main", None, False)
    ]
    record = await run.record()
    assert (record.workflow, record.version, record.digest, record.queue) == ("shop", "2", "abc", "main")
    assert record.wake_at is not None
    assert record.created_at == record.updated_at == answer.now
    assert (record.ended_at, record.status, len(record.key)) == (None, "RUNNING", 16)


async def test_the_same_run_is_started_once(store: Store) -> None:
    """A start of an id that is there finds the run, and writes nothing."""
    run = Run(store, "r")
    first = await run.start(1)

    second = await run.start(1)

    assert (first.existed, second.existed, second.mismatch) == (False, True, False)
    assert await run.story() == ["ExecutionStarted"]


async def test_a_repeated_start_repeats_the_hint_as_long_as_nobody_followed_it(store: Store) -> None:
    """The first caller may have died between its commit and its hint."""
    run = Run(store, "r")
    await run.start(1)

    owed = await run.start(1)
    await run.move(waits())
    followed = await run.start(1)

    assert owed.hints == [Hint(run=run.ref, queue="main")]
    assert followed.hints == []


async def test_the_same_id_with_another_input_is_told(store: Store) -> None:
    """The run that is there stays as it is; the caller learns that it asked for something else."""
    run = Run(store, "r")
    await run.start({"a": 1, "b": 2})

    reordered = await run.start({"b": 2, "a": 1})
    other_input = await run.start({"a": 1})
    other_workflow = await run.start({"a": 1, "b": 2}, workflow="mail")

    assert (reordered.existed, reordered.mismatch) == (True, False)
    assert (other_input.existed, other_input.mismatch) == (True, True)
    assert (other_workflow.existed, other_workflow.mismatch) == (True, True)


async def test_an_idempotency_key_finds_its_run(store: Store) -> None:
    """A second start with the key is a start of the first run, whatever id it brings."""
    first = Run(store, "first")
    await first.start(1, idempotency_key="once")

    second = await Run(store, "second").start(1, idempotency_key="once")
    third = await Run(store, "third").start(2, idempotency_key="once")

    assert (second.run, second.existed, second.mismatch) == (first.ref, True, False)
    assert (third.run, third.existed, third.mismatch) == (first.ref, True, True)
    assert await store.find(RunRef("default", "second")) is None


async def test_namespaces_are_apart(store: Store) -> None:
    """An id and an idempotency key are each namespace's own."""
    here, there = Run(store, "r", "here"), Run(store, "r", "there")
    await here.start(1, idempotency_key="once")

    answer = await there.start(2, idempotency_key="once")

    assert not answer.existed
    assert (await here.record()).key != (await there.record()).key


async def test_a_hundred_starts_at_once_are_one_run(store: Store) -> None:
    """Whoever comes first starts the run; all the others find it."""
    runs = [Run(store, f"r{number}") for number in range(100)]

    answers = await asyncio.gather(*[run.start(1, idempotency_key="once") for run in runs])

    assert [answer.existed for answer in answers].count(False) == 1
    assert len({answer.run for answer in answers}) == 1
    assert len(await store.runs(RunFilter(namespace="default", limit=200))) == 1


async def test_two_starts_in_one_batch_are_one_run(store: Store) -> None:
    """An append sees what the one before it in the batch did."""
    ref = RunRef("default", "r")

    first, second = await store.append([Append(run=ref, start=a_start(1))] * 2)

    assert (first.existed, second.existed) == (False, True)
    assert await Run(store, "r").story() == ["ExecutionStarted"]


async def test_a_run_that_has_ended_is_still_found(store: Store) -> None:
    """Starting a finished run again does not run it again; who waits for it is told at once."""
    run = Run(store, "r")
    await run.start(1)
    await run.move(ends())

    answer = await run.start(1, mark=Await(reply_to="client-1"))

    assert answer.existed
    assert [(end.run, end.reply_to) for end in answer.ended] == [(run.ref, ("client-1",))]
    assert await run.story() == ["ExecutionStarted", "ExecutionCompleted"]


async def test_a_run_that_waits_for_admission_is_pending(store: Store) -> None:
    """A queued run is there, but its code has not begun."""
    run = Run(store, "r")

    await run.start(admission="queued")

    assert (await run.record()).status == "PENDING"
