"""One delivery as one pipeline: load, show, move, append, acknowledge."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Sequence

import pytest

from tests.unit.workers.house import House
from tidewheel import App, Context, Retry, RunFailed, StepFailed
from tidewheel.broker.message import Message, Publication
from tidewheel.broker.topology import dead_letter_queue, poison_queue, work_queue
from tidewheel.journal import events as ev
from tidewheel.replay.execution import Execution
from tidewheel.sdk.limits import Limits
from tidewheel.store.append import Append, Appended
from tidewheel.workers.config import WorkerConfig
from tidewheel.workers.held import Held
from tidewheel.workers.inline import InlineSteps
from tidewheel.workers.near_timers import NearTimers
from tidewheel.workers.session import Session

app = App("turns")


@app.task
async def double(number: int) -> int:
    """A step."""
    return 2 * number


@app.workflow
async def steps(ctx: Context, count: int) -> int:
    """Step after step."""
    total = 0
    for number in range(count):
        total += await ctx.invoke(double, number)
    return total


@app.workflow
async def waits(ctx: Context) -> str:
    """Waits for somebody."""
    word: str = await ctx.signal("go")
    return word


async def test_a_sequential_step_costs_one_commit_and_no_read(house: House) -> None:
    """Its result and the code's next moves share a transaction; the cache knows the rest."""
    worker = await house.worker(app)
    client = await house.client()

    handle = await client.start(steps, 200)
    result = await handle.result()

    assert result == 200 * 199
    assert worker.services.writer.appends <= 200 + 3
    assert house.store.calls["load"] == 1


async def test_deliveries_are_acknowledged_once_all_is_written(house: House) -> None:
    """Nothing is left in the queue or in hand."""
    await house.worker(app)
    client = await house.client()
    handle = await client.start(waits)

    await house.until(lambda: house.kinds(handle.run_id)["ExecutionAwaiting"] == 1)
    await house.hint(handle.run_id)
    await handle.signal("go", "now")
    result = await handle.result()

    assert result == "now"
    assert await house.broker.depth(work_queue("default", "default")) == 0
    assert house.run(handle.run_id).wake_at is None


async def test_a_hint_for_nothing_writes_nothing(house: House) -> None:
    """A hundred hints to a run that waits change nothing."""
    worker = await house.worker(app)
    client = await house.client()
    handle = await client.start(waits)
    await house.until(lambda: house.kinds(handle.run_id)["ExecutionAwaiting"] == 1)
    await asyncio.sleep(1)
    before = worker.services.writer.appends

    for _ in range(100):
        await house.hint(handle.run_id)
    await asyncio.sleep(1)

    assert worker.services.writer.appends == before


async def test_two_workers_that_get_the_same_hints_execute_each_step_once(house: House) -> None:
    """The fence and the owner keep them apart."""
    executed: list[int] = []
    shared = App("shared")

    @shared.task
    async def note(number: int) -> None:
        executed.append(number)
        await asyncio.sleep(0.05)

    @shared.workflow
    async def notes(ctx: Context) -> None:
        for number in range(20):
            await ctx.invoke(note, number)

    await house.worker(shared)
    await house.worker(shared)
    client = await house.client()
    handle = await client.start(notes)
    waiting = asyncio.ensure_future(handle.result())
    while not waiting.done():
        await house.hint(handle.run_id)
        await asyncio.sleep(0.02)

    assert executed == list(range(20))
    assert house.kinds(handle.run_id)["InvokeRetrying"] == 0


async def test_a_poison_message_is_kept_for_people_and_the_worker_goes_on(house: House) -> None:
    """Bytes that are no work item become a dead letter; the keeper puts them aside."""
    await house.worker(app)
    await house.keeper()
    client = await house.client()
    poison = Message(body=b"\xff not json", message_id="poison")

    await house.broker.publish([Publication(message=poison, routing_key=work_queue("default", "default"))])
    result = await (await client.start(steps, 2)).result()
    await asyncio.sleep(5)

    assert result == 2
    assert await house.broker.depth(poison_queue("default")) == 1
    assert await house.broker.depth(dead_letter_queue(work_queue("default", "default"))) == 0


async def test_results_wait_for_a_store_that_is_away(house: House) -> None:
    """A finished result is not thrown away: the step is not executed again."""
    executed: list[str] = []
    patient = App("patient")

    @patient.task
    async def effect() -> str:
        executed.append("once")
        house.store.is_down = True
        return "done"

    @patient.workflow
    async def run_effect(ctx: Context) -> str:
        return await ctx.invoke(effect)

    await house.worker(patient)
    client = await house.client()
    handle = await client.start(run_effect)
    await house.until(lambda: house.store.is_down)
    await asyncio.sleep(30)
    house.store.is_down = False
    await house.until(lambda: house.run(handle.run_id).ended)

    assert executed == ["once"]
    assert house.kinds(handle.run_id)["InvokeStarted"] == 1


async def test_a_lost_reply_to_a_commit_repeats_nothing(house: House) -> None:
    """The same append again finds its own token."""
    await house.worker(app)
    client = await house.client()
    handle = await client.start(steps, 5)
    house.store.lost_replies = 3

    result = await handle.result()

    assert result == 20
    assert house.kinds(handle.run_id)["InvokeCompleted"] == 5


async def test_a_result_over_the_limit_fails_its_step_with_the_way_out(house: House) -> None:
    """It is not retried: the next attempt's would be as large."""
    large = App("large")

    @large.task(retry=Retry(max_attempts=5))
    async def produce() -> str:
        return "x" * 5000

    @large.workflow
    async def consume(ctx: Context) -> str:
        try:
            return await ctx.invoke(produce)
        except StepFailed as problem:
            return problem.message

    await house.worker(large, limits=Limits(payload_max_bytes=2000))
    client = await house.client()
    result = await (await client.start(consume)).result()

    assert "the result of produce is 5,002 bytes" in result
    assert "pass a reference" in result


async def test_an_input_over_the_limit_fails_its_run_with_the_way_out(house: House) -> None:
    """Nothing of the activation that asked for it is kept."""
    large = App("large_input")

    @large.task
    async def take(text: str) -> None: ...

    @large.workflow
    async def give(ctx: Context) -> None:
        await ctx.invoke(take, "x" * 5000)

    await house.worker(large, limits=Limits(payload_max_bytes=2000))
    client = await house.client()
    handle = await client.start(give)

    with pytest.raises(RunFailed, match="the input of take is 5,004 bytes"):
        await handle.result()
    assert [type(event) for event in house.events(handle.run_id)] == [ev.ExecutionStarted, ev.ExecutionFailed]


async def test_a_history_over_the_limit_fails_its_run_with_the_way_out(house: House) -> None:
    """A loop without continue_as_new does not fill the store."""
    await house.worker(app, limits=Limits(history_warning_events=100, history_max_events=120))
    client = await house.client()

    with pytest.raises(RunFailed, match="continue_as_new"):
        await (await client.start(steps, 1000)).result()


async def test_the_cache_is_bounded_and_losing_it_changes_nothing(house: House) -> None:
    """With room for two runs, twenty that wait are taken up again from their journals."""
    worker = await house.worker(app, WorkerConfig(cache=2))
    client = await house.client()
    handles = [await client.start(waits) for _ in range(20)]
    await house.until(lambda: all(house.kinds(one.run_id)["ExecutionAwaiting"] for one in handles))
    await asyncio.sleep(1)

    assert worker.cached() <= 2
    for handle in handles:
        await handle.signal("go", "on")
    assert [await handle.result() for handle in handles] == ["on"] * 20


async def test_runs_that_left_the_cache_leave_nothing_for_the_garbage_collector(house: House) -> None:
    """A sleeping run costs no memory: what was kept of it is free at once, not when somebody looks for it."""
    await house.worker(app, WorkerConfig(cache=2))
    client = await house.client()
    gc.collect()
    gc.disable()
    before = _kept_of_runs()
    try:
        asleep = [await client.start(waits) for _ in range(20)]
        ended = [await client.start(steps, 2) for _ in range(20)]
        await house.until(lambda: all(house.kinds(one.run_id)["ExecutionAwaiting"] for one in asleep))
        assert [await one.result() for one in ended] == [2] * 20
        await asyncio.sleep(1)

        kept = _kept_of_runs() - before
    finally:
        gc.enable()

    assert {kind: count for kind, count in kept.items() if count > 2} == {}


def _kept_of_runs() -> Counter[str]:
    """How many objects there are of what a worker keeps of a run."""
    kinds = (Session, Held, InlineSteps, NearTimers, Execution)
    return Counter(type(one).__name__ for one in gc.get_objects() if isinstance(one, kinds))


async def test_a_task_that_no_app_has_fails_with_what_to_do(house: House) -> None:
    """Its own workers are the only ones that could execute it."""
    other = App("other")
    lonely = App("lonely")

    @other.task
    async def elsewhere() -> None: ...

    @other.workflow
    async def child(ctx: Context) -> None: ...

    @lonely.workflow
    async def asks(ctx: Context, for_child: bool) -> str:
        try:
            await (ctx.invoke(child) if for_child else ctx.invoke(elsewhere))
        except StepFailed as problem:
            return problem.message
        return "?"

    await house.worker(lonely)
    client = await house.client()

    for for_child, what in ((False, "task 'elsewhere'"), (True, "workflow 'child'")):
        message = await (await client.start(asks, for_child)).result()
        assert f"has no {what}" in message
        assert "app.include" in message


async def test_a_run_hears_of_what_ends_after_others_results_came_between(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No keeper is there to wake it again: once it was shown what came between, it has to say so."""
    app, append = App("turns"), house.store.append

    @app.task(queue="elsewhere")
    async def rest(seconds: float) -> float:
        await asyncio.sleep(seconds)
        return seconds

    @app.workflow
    async def rests(ctx: Context) -> float:
        return sum(await asyncio.gather(*(ctx.invoke(rest, seconds) for seconds in (1.0, 1.125, 1.5))))

    async def append_late(requests: Sequence[Append]) -> list[Appended]:
        if any(request.moves is not None and not request.moves.events for request in requests):
            await asyncio.sleep(0.25)  # so that the second result lands after the first was read
        return await append(requests)

    monkeypatch.setattr(house.store, "append", append_late)
    await house.worker(app)
    await house.worker(app, WorkerConfig(queues=("elsewhere",)))
    handle = await (await house.client()).start(rests)

    assert await handle.result(timeout=10) == 3.625
