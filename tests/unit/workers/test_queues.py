"""Queues keep work apart: who does not serve a queue never executes what is on it, nor waits for it."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.workers.house import House
from tidewheel import App, Context, Retry
from tidewheel.broker.topology import STICKY_TTL_S, sticky_queue
from tidewheel.broker.work_items import RunHint, to_queue, to_workers
from tidewheel.workers.config import WorkerConfig

MINUTE = 60.0


class Studio:
    """An app for several workers, each with its own copy: what was executed is noted with whose it was."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str]] = []
        self.at_work = 0
        self.most_at_work = 0

    def app(self, worker: str) -> App:
        """Return the app as *worker* has it."""
        app = App("studio")

        @app.task(queue="gpu")
        async def render(frame: int) -> int:
            self.done.append((worker, "render"))
            self.at_work += 1
            self.most_at_work = max(self.most_at_work, self.at_work)
            await asyncio.sleep(MINUTE)
            self.at_work -= 1
            return frame

        @app.task
        async def note(text: str) -> str:
            self.done.append((worker, "note"))
            return text

        @app.workflow
        async def film(ctx: Context, frames: int) -> int:
            await ctx.invoke(note, "begun")
            shown = await asyncio.gather(*(ctx.invoke(render, frame) for frame in range(frames)))
            await ctx.invoke(note, "ended")
            return len(shown)

        @app.workflow
        async def memo(ctx: Context, text: str) -> str:
            return await ctx.invoke(note, text)

        @app.workflow(queue="gpu")
        async def still(ctx: Context) -> str:
            await ctx.signal("go")
            return await ctx.invoke(note, "still")

        return app

    def who(self, what: str) -> set[str]:
        """Tell which workers have executed steps of a kind."""
        return {worker for worker, done in self.done if done == what}


@pytest.fixture
def studio() -> Studio:
    """Nothing was executed yet."""
    return Studio()


def _now() -> float:
    return asyncio.get_running_loop().time()


async def test_a_queue_has_a_pool_of_its_own(house: House, studio: Studio) -> None:
    """Its tasks are executed by its workers alone, as many at a time as those have slots."""
    client = await house.client()
    await house.worker(studio.app("general"))
    await house.worker(studio.app("graphics"), WorkerConfig(queues=("gpu",), slots=2))
    await house.keeper()
    began = _now()

    handle = await client.start("film", 10)

    assert await handle.result(timeout=3600) == 10
    assert studio.who("render") == {"graphics"}
    assert studio.who("note") == {"general"}
    assert studio.most_at_work == 2
    assert _now() - began == pytest.approx(5 * MINUTE, rel=0.1)


async def test_a_full_queue_does_not_hold_up_another(house: House, studio: Studio) -> None:
    """However much waits for the graphics worker, the general one goes on with everything else at once."""
    client = await house.client()
    await house.worker(studio.app("general"), WorkerConfig(slots=4, prefetch=4))
    await house.worker(studio.app("graphics"), WorkerConfig(queues=("gpu",), slots=1, prefetch=1))
    await house.keeper()
    films = [await client.start("film", 50) for _ in range(20)]
    await house.until(lambda: studio.done.count(("general", "note")) == len(films))

    began = _now()
    memos = [await client.start("memo", "hello") for _ in range(20)]
    told = [await memo.result(timeout=10) for memo in memos]

    assert told == ["hello"] * 20
    assert _now() - began < 1.0
    assert studio.who("render") <= {"graphics"}


async def test_nobody_else_takes_what_a_queue_without_workers_has(house: House, studio: Studio) -> None:
    """It waits; a worker of that queue that is started later executes all of it."""
    client = await house.client()
    await house.worker(studio.app("general"))
    await house.keeper()
    handle = await client.start("film", 3)
    await asyncio.sleep(10 * MINUTE)
    assert studio.who("render") == set()

    await house.worker(studio.app("graphics"), WorkerConfig(queues=("gpu",)))

    assert await handle.result(timeout=3600) == 3
    assert studio.who("render") == {"graphics"}


async def test_whoever_takes_over_a_run_does_not_take_over_other_queues(house: House, studio: Studio) -> None:
    """The worker that served both is gone: its graphics steps wait for one that serves their queue."""
    client = await house.client()
    both = await house.worker(studio.app("both"), WorkerConfig(queues=("default", "gpu")))
    await house.keeper()
    handle = await client.start("film", 4)
    await house.until(lambda: studio.at_work == 4)
    await both.stop(grace_s=0.0)
    await house.worker(studio.app("general"))
    await asyncio.sleep(10 * MINUTE)

    assert studio.who("render") == {"both"}
    await house.worker(studio.app("graphics"), WorkerConfig(queues=("gpu",)))
    assert await handle.result(timeout=3600) == 4
    assert studio.who("render") == {"both", "graphics"}
    assert studio.done[-1] == ("general", "note")


@pytest.mark.parametrize("where", ["queue", "sticky"])
async def test_a_hint_that_went_astray_is_passed_on(house: House, studio: Studio, where: str) -> None:
    """A run belongs to its queue, whichever way its hint came: others send it there, and do nothing else."""
    client = await house.client()
    general = await house.worker(studio.app("general"))
    handle = await client.start("still", queue="gpu")
    hint = RunHint(namespace="default", run_id=handle.run_id)
    address = to_workers(hint, "default")
    if where == "sticky":
        address = to_queue(hint, sticky_queue(general.worker_id))

    await house.broker.publish([address])
    await asyncio.sleep(1)
    assert house.kinds(handle.run_id)["ExecutionAwaiting"] == 0
    await house.worker(studio.app("graphics"), WorkerConfig(queues=("gpu",)))
    await house.broker.publish([address])
    await house.until(lambda: house.kinds(handle.run_id)["ExecutionAwaiting"] == 1)
    await handle.signal("go")

    assert await handle.result(timeout=MINUTE) == "still"
    assert studio.who("note") == {"graphics"}


async def test_a_parked_run_is_tried_by_workers_of_its_queue_only(house: House, studio: Studio) -> None:
    """Others may have its code: it is not theirs."""
    client = await house.client()
    await house.worker(App("bare"), WorkerConfig(queues=("gpu",)))
    await house.keeper()
    handle = await client.start("still", queue="gpu")
    await house.until(lambda: house.run(handle.run_id).parked == "unknown_workflow")

    await house.worker(studio.app("general"))
    await asyncio.sleep(MINUTE)
    still_parked = house.run(handle.run_id).parked
    await house.worker(studio.app("graphics"), WorkerConfig(queues=("gpu",)))
    await handle.signal("go")

    assert still_parked == "unknown_workflow"
    assert await handle.result(timeout=MINUTE) == "still"
    assert studio.who("note") == {"graphics"}


async def test_a_hint_for_a_worker_that_is_gone_goes_back_to_the_shared_queue(
    house: House, studio: Studio
) -> None:
    """What nobody takes from a worker's own queue in time is given to all."""
    client = await house.client()
    gone = await house.worker(studio.app("gone"))
    handle = await client.start("still", queue="default")
    await house.until(lambda: house.kinds(handle.run_id)["ExecutionAwaiting"] == 1)
    for chore in gone._chores:  # it no longer hears anything, and has not said so
        chore.cancel()
    await house.worker(studio.app("general"))
    published = len(house.broker.published)
    hint = RunHint(namespace="default", run_id=handle.run_id)
    await house.broker.publish([to_queue(hint, sticky_queue(gone.worker_id))])
    loads = house.store.calls["load"]

    await asyncio.sleep(STICKY_TTL_S + 1)

    assert house.store.calls["load"] == loads + 1
    assert len(house.broker.published) == published + 1


async def test_workers_of_one_queue_share_what_is_long(house: House, studio: Studio) -> None:
    """Each takes as much as it has slots for: what waits goes to whoever has room, also to a latecomer."""
    client = await house.client()
    graphics = WorkerConfig(queues=("gpu",), slots=2, hold_s=5.0)
    await house.worker(studio.app("general"))
    await house.worker(studio.app("first"), graphics)
    handle = await client.start("film", 4)
    await house.until(lambda: studio.at_work == 2)
    await asyncio.sleep(30)
    kinds = house.kinds(handle.run_id)
    began = _now()
    await house.worker(studio.app("second"), graphics)

    await house.until(lambda: studio.at_work == 4, seconds=20)

    assert kinds["InvokeStarted"] - kinds["InvokeCompleted"] == 2
    assert _now() - began < 15
    assert await handle.result(timeout=3600) == 4
    assert studio.done.count(("second", "render")) == 2


async def test_runs_that_wait_for_a_retry_leave_room_for_others(house: House) -> None:
    """However few a worker has in hand at a time, a step in a long pause is not one of them."""
    app = App("flaky")
    calls: list[int] = []

    @app.task(retry=Retry(max_attempts=3, initial=20.0, jitter=0.0))
    async def fails_first(number: int) -> int:
        calls.append(number)
        if calls.count(number) == 1:
            raise ConnectionError("not yet")
        return number

    @app.workflow
    async def tries(ctx: Context, number: int) -> int:
        return await ctx.invoke(fails_first, number)

    client = await house.client()
    await house.worker(app, WorkerConfig(slots=1, prefetch=1))
    await house.keeper()
    began = _now()

    handles = [await client.start(tries, number) for number in range(10)]

    assert [await handle.result(timeout=MINUTE) for handle in handles] == list(range(10))
    assert _now() - began == pytest.approx(20, abs=2)
