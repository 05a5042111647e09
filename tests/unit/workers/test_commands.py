"""Commands by message: runs are started, told and stopped by whoever can publish, as often as asked for."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
from collections.abc import Sequence

import pytest

from tests.unit.workers.house import House
from tests.unit.workers.postbox import Postbox
from tidewheel import App, Client, Context, RunFailed
from tidewheel.broker.errors import BrokerUnavailable
from tidewheel.broker.work_items import RunHint, read_item
from tidewheel.journal import events as ev
from tidewheel.journal.errors import InvalidRequest
from tidewheel.sdk.errors import NotFound
from tidewheel.store.append import Append, Appended
from tidewheel.workers.config import WorkerConfig

MINUTE = 60.0
app = App("commands")


@dataclasses.dataclass
class Picky:
    """An argument that refuses some values in its own way."""

    number: int

    def __post_init__(self) -> None:
        self.share = 1 / self.number


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
async def waits(ctx: Context) -> list[str]:
    """Hears words until the last."""
    heard: list[str] = []
    while "last" not in heard:
        heard.append(await ctx.signal("word", into=str))
    return heard


@app.workflow
async def hurries(ctx: Context, left: int) -> str:
    """Ends in its first turn, or continues as new in it."""
    return ctx.continue_as_new(left - 1) if left else "there"


@app.workflow
async def breaks(ctx: Context) -> None:
    """Fails in its first turn."""
    raise LookupError("nothing here")


@app.workflow
async def picks(ctx: Context, picky: Picky) -> int:
    """Takes a type of the user's."""
    return picky.number


@app.workflow
async def tells_time(ctx: Context) -> str:
    """Says when it began."""
    return ctx.now().isoformat()


@app.workflow(queue="gpu")
async def renders(ctx: Context) -> str:
    """Belongs to a queue of its own."""
    return "rendered"


def hints_for(house: House, run_id: str) -> int:
    """How many hints were published for a run."""
    items = [read_item(one.message) for one in house.broker.published if not one.exchange]
    return sum(isinstance(item, RunHint) and item.run_id == run_id for item in items)


def has_begun(house: House, run_id: str) -> bool:
    """Tell whether a run is there, and its code has moved."""
    runs = house.store.rows.runs.values()
    return any(run.ref == ("default", run_id) and run.token for run in runs)


# Starting


@pytest.mark.parametrize("listens", [True, False], ids=["told", "looking"])
@pytest.mark.parametrize("by_name", [True, False], ids=["by name", "by function"])
async def test_a_start_by_message_comes_to_its_result(house: House, by_name: bool, listens: bool) -> None:
    """The handle is that of the run which the message starts, and waits for its end."""
    await house.worker(app)
    client = await house.client()
    if listens:
        await client.listen()

    handle = await client.publish_start("steps" if by_name else steps, 4)

    assert await handle.result(timeout=MINUTE) == 12
    assert house.kinds(handle.run_id)["InvokeCompleted"] == 4


async def test_the_first_turn_is_written_with_the_start(house: House) -> None:
    """One append has both: nothing is read, nobody is hinted at, and the client is told of the end."""
    worker = await house.worker(app)
    client = await house.client()
    await client.listen()
    before = worker.services.writer.appends

    handle = await client.publish_start(steps, 1, run_id="r")
    await handle.result(timeout=MINUTE)

    first, *_ = house.store.rows.journals[house.run("r").key]
    assert (first.first_seq, first.last_seq) == (0, 2)
    assert worker.services.writer.appends - before == 2
    assert (house.store.calls["load"], hints_for(house, "r")) == (0, 0)
    assert house.run("r").reply_to == (client._connection.replies.queue,)


async def test_a_run_goes_by_the_time_that_its_code_was_shown_first(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That was before its start was written: the journal has both times, or replay would see another."""
    append = house.store.append

    async def slow(batch: Sequence[Append]) -> list[Appended]:
        await asyncio.sleep(3)
        return await append(batch)

    monkeypatch.setattr(house.store, "append", slow)
    await house.worker(app)

    handle = await (await house.client()).publish_start(tells_time)
    told = dt.datetime.fromisoformat(await handle.result(timeout=MINUTE))

    first, *_ = await handle.journal()
    assert isinstance(first.event, ev.ExecutionStarted)
    assert first.at is not None
    assert first.event.now == told == first.at - dt.timedelta(seconds=3)


async def test_switched_off_a_start_is_stored_first(house: House) -> None:
    """The run is hinted at like any other, and comes to the same."""
    await house.worker(app, WorkerConfig(opens=False))
    client = await house.client()

    handle = await client.publish_start(steps, 4, run_id="r")

    assert await handle.result(timeout=MINUTE) == 12
    first, *_ = house.store.rows.journals[house.run("r").key]
    assert (first.last_seq, hints_for(house, "r")) == (0, 1)


@pytest.mark.parametrize("left", [0, 1, 3])
async def test_a_run_that_ends_or_continues_in_its_first_turn_ends(house: House, left: int) -> None:
    """Whoever waits is told, though no step was ever executed."""
    await house.worker(app)
    client = await house.client()
    await client.listen()

    handle = await client.publish_start(hurries, left)

    assert await handle.result(timeout=1) == "there"
    assert house.kinds(handle.run_id)["ExecutionContinued"] == left


async def test_a_run_that_fails_in_its_first_turn_has_failed(house: House) -> None:
    """The command was followed: what became of the run is the run's."""
    await house.worker(app)
    client = await house.client()

    handle = await client.publish_start(breaks)

    with pytest.raises(RunFailed, match="nothing here"):
        await handle.result(timeout=MINUTE)


async def test_commands_are_acknowledged_once_all_is_written(house: House, postbox: Postbox) -> None:
    """Nothing is left in the queue or in hand."""
    worker = await house.worker(app)
    for number in range(5):
        await postbox.start("waits", run_id=f"r{number}")
    await house.until(lambda: all(has_begun(house, f"r{number}") for number in range(5)))
    await postbox.signal("r0", "word", payload="last")
    await postbox.cancel("r1")
    await house.until(lambda: house.run("r0").ended and house.run("r1").ended)

    for chore in worker._chores:  # which gives back what is in hand
        chore.cancel()
    await asyncio.gather(*worker._chores, return_exceptions=True)

    assert await postbox.waiting() == 0
    assert await postbox.reasons() == []


async def test_a_handle_is_there_before_the_run(house: House) -> None:
    """Until a worker has taken the message there is no run: that is no reason not to wait for it."""
    client = await house.client()
    handle = await client.publish_start("steps", 4)  # nobody has declared what takes it

    with pytest.raises(NotFound):
        await handle.status()
    with pytest.raises(TimeoutError):
        await handle.result(timeout=10)
    await house.worker(app)

    assert await handle.result(timeout=MINUTE) == 12


async def test_what_is_refused_or_not_taken_is_told_to_the_caller(house: House) -> None:
    """Before anything is published where it can be seen here; else when the broker does not say it has it."""
    client = await house.client()

    with pytest.raises(InvalidRequest, match=r"takes \(count\)"):
        await client.publish_start(steps)
    with pytest.raises(InvalidRequest, match="run id"):
        await client.publish_start(steps, 1, run_id="with space")
    house.broker.is_down = True
    with pytest.raises(BrokerUnavailable):
        await client.publish_start(steps, 1)

    assert house.broker.published == []


# How often


async def test_the_same_run_id_is_one_run(house: House, postbox: Postbox) -> None:
    """However often, at the same time or later, and whoever takes it."""
    await house.worker(app)
    await house.worker(app)
    client = await house.client()

    for _ in range(5):
        await postbox.start("steps", 3, run_id="r")
    result = await (await client.publish_start(steps, 3, run_id="r")).result(timeout=MINUTE)
    for _ in range(5):
        await postbox.start("steps", 3, run_id="r")
    await asyncio.sleep(5)

    assert result == 6
    assert await postbox.runs() == {"r": "COMPLETED"}
    assert house.kinds("r")["InvokeCompleted"] == 3
    assert await postbox.reasons() == []


async def test_the_same_request_is_one_run(house: House, postbox: Postbox) -> None:
    """Its id is made of the request's, the workflow's and the namespace's: of others it is another run."""
    await house.worker(app)

    for _ in range(3):
        await postbox.start("steps", 1, request_id="q")
    await postbox.start("hurries", 0, request_id="q")
    await postbox.start("steps", 1, request_id="p")
    await postbox.start("steps", 1, request_id="q", namespace="elsewhere")
    await asyncio.sleep(5)

    here, there = await postbox.runs(), await postbox.runs("elsewhere")
    assert sorted(run_id.partition("-")[0] for run_id in here) == ["hurries", "steps", "steps"]
    assert set(here.values()) == {"COMPLETED"}
    assert len(there) == 1
    assert not here.keys() & there.keys()


async def test_a_request_is_the_same_whatever_brings_it(house: House, postbox: Postbox) -> None:
    """The id of the message counts only where there is no other."""
    await house.worker(app)

    await postbox.start("steps", 1, request_id="q", message_id="first")
    await postbox.start("steps", 1, request_id="q", message_id="second")
    await postbox.start("steps", 1, run_id="r", message_id="third")
    await postbox.start("steps", 1, run_id="r", message_id="fourth")
    await asyncio.sleep(5)

    assert len(await postbox.runs()) == 2


@pytest.mark.parametrize("message_id", ["m", "m" * 255, "new\nline"])
async def test_the_same_message_is_one_run(house: House, postbox: Postbox, message_id: str) -> None:
    """A publisher that was not told repeats it, whatever it takes for an id; another one is another run."""
    await house.worker(app)

    await postbox.start("steps", 1, message_id=message_id)
    await postbox.start("steps", 1, message_id=message_id)
    await postbox.start("steps", 1, message_id="another")
    await asyncio.sleep(5)

    assert list((await postbox.runs()).values()) == ["COMPLETED"] * 2
    assert await postbox.reasons() == []


async def test_without_any_id_each_message_is_a_run(house: House, postbox: Postbox) -> None:
    """Nothing tells one from the other."""
    await house.worker(app)

    await postbox.start("steps", 1)
    await postbox.start("steps", 1)
    await asyncio.sleep(5)

    assert list((await postbox.runs()).values()) == ["COMPLETED"] * 2


async def test_an_idempotency_key_is_one_run(house: House, postbox: Postbox) -> None:
    """Whatever ids it comes with; a client that starts with the key finds the run too."""
    await house.worker(app)
    client = await house.client()

    await postbox.start("steps", 1, idempotency_key="once", run_id="first")
    await house.until(lambda: has_begun(house, "first"))
    await postbox.start("steps", 1, idempotency_key="once", run_id="second")
    await asyncio.sleep(5)
    handle = await client.start(steps, 1, idempotency_key="once")

    assert await postbox.runs() == {"first": "COMPLETED"}
    assert (handle.run_id, handle.existed) == ("first", True)
    assert await postbox.reasons() == []


@pytest.mark.parametrize("config", [WorkerConfig(), WorkerConfig(opens=False)], ids=["opens", "stores"])
async def test_the_same_run_id_with_another_input_is_a_dead_letter(
    house: House, postbox: Postbox, config: WorkerConfig
) -> None:
    """The run that is there goes on as it is; whoever looks at the letter learns why."""
    await house.worker(app, config)
    await postbox.start("waits", run_id="r")
    await house.until(lambda: has_begun(house, "r"))

    await postbox.start("waits", run_id="r")
    await postbox.start("steps", 1, run_id="r")
    await postbox.start("steps", 2, run_id="other")
    await asyncio.sleep(5)

    assert await postbox.reasons() == ["run 'r' is there already, with another workflow or input"]
    assert await postbox.runs() == {"r": "RUNNING", "other": "COMPLETED"}


async def test_another_input_is_a_dead_letter_after_the_run_has_ended_too(
    house: House, postbox: Postbox
) -> None:
    """Nothing of the run is in the worker's memory then: it begins with the command, and learns of it."""
    await house.worker(app)
    await postbox.start("steps", 1, run_id="r")
    await asyncio.sleep(5)

    await postbox.start("steps", 2, run_id="r")
    await asyncio.sleep(5)

    assert await postbox.reasons() == ["run 'r' is there already, with another workflow or input"]
    assert await postbox.runs() == {"r": "COMPLETED"}


@pytest.mark.parametrize("ends", [True, False], ids=["ended", "elsewhere"])
async def test_a_run_that_is_not_in_memory_is_not_taken_for_another(
    house: House, postbox: Postbox, ends: bool
) -> None:
    """The worker has begun with the command when it learns of the run: the command is a dead letter still."""
    first = await house.worker(app)
    await postbox.start("hurries" if ends else "waits", *([0] if ends else []), run_id="r")
    await house.until(lambda: has_begun(house, "r"))
    await first.stop()
    await house.worker(app)
    before = house.events("r")

    await postbox.start("steps", 1, run_id="r")
    await postbox.start("steps", 2, run_id="other")
    await asyncio.sleep(5)

    assert await postbox.reasons() == ["run 'r' is there already, with another workflow or input"]
    assert house.events("r") == before
    assert (await postbox.runs())["other"] == "COMPLETED"
    assert await postbox.waiting() == 0


async def test_a_dead_letter_names_the_run_that_has_the_key(house: House, postbox: Postbox) -> None:
    """That is the run which was started otherwise, not the id that was brought along."""
    await house.worker(app)
    await postbox.start("steps", 1, idempotency_key="once", run_id="first")
    await house.until(lambda: has_begun(house, "first"))

    await postbox.start("steps", 2, idempotency_key="once", run_id="second")
    await asyncio.sleep(5)

    assert await postbox.reasons() == ["run 'first' is there already, with another workflow or input"]
    assert await postbox.runs() == {"first": "COMPLETED"}


# For others


async def test_a_start_for_others_is_stored_and_hinted_at(house: House, postbox: Postbox) -> None:
    """Whoever takes a command need not have the workflow: the run waits for a worker that has it."""
    bare = await house.worker(App("bare"), WorkerConfig(queues=("other",)))
    await house.keeper()
    await postbox.start("steps", 4, run_id="r")
    await house.until(lambda: bool(house.store.rows.runs))
    record = house.run("r")
    assert (record.last_seq, record.queue, record.digest) == (0, "default", "")
    assert record.wake_at is not None
    await bare.stop()

    await house.worker(app)
    result = await (await house.client()).handle("r").result(timeout=MINUTE)

    assert result == 12
    assert await postbox.reasons() == []


async def test_a_start_for_a_queue_that_is_not_served_is_run_by_its_workers(
    house: House, postbox: Postbox
) -> None:
    """Though the worker that took it has the code: the queue that is given, or else the workflow's own."""
    general = await house.worker(app)
    await house.keeper()
    await postbox.start("renders", run_id="own")
    await postbox.start("steps", 2, run_id="given", queue="gpu")
    await postbox.start("renders", run_id="here", queue="default")
    await house.until(lambda: len(house.store.rows.runs) == 3 and house.run("here").ended)
    await asyncio.sleep(10)
    before = await postbox.runs()

    graphics = await house.worker(app, WorkerConfig(queues=("gpu",)))
    await house.until(lambda: house.run("own").ended and house.run("given").ended)

    assert before == {"own": "RUNNING", "given": "RUNNING", "here": "COMPLETED"}
    assert [house.run(run_id).queue for run_id in ("own", "given", "here")] == ["gpu", "gpu", "default"]
    assert (general.cached(), graphics.cached()) == (0, 0)


async def test_a_start_for_another_namespace_is_run_there(house: House, postbox: Postbox) -> None:
    """One queue has the commands of all namespaces; who takes one for another only stores it."""
    await house.worker(app)
    await postbox.start("steps", 4, run_id="r", namespace="shop")
    await asyncio.sleep(5)
    before = await postbox.runs("shop")

    async with await Client.connect(house.store, house.broker, namespace="shop") as client:
        await house.worker(app, namespace="shop")
        await house.keeper()
        result = await client.handle("r").result(timeout=MINUTE)

    assert (before, result) == ({"r": "RUNNING"}, 12)
    assert await postbox.runs() == {}


async def test_a_worker_of_another_namespace_does_not_begin_it_itself(house: House, postbox: Postbox) -> None:
    """It may have a workflow of the same name, which is another one."""
    await house.worker(app, namespace="shop")

    await postbox.start("steps", 4, run_id="r")
    await asyncio.sleep(5)

    assert house.run("r").last_seq == 0
    assert house.run("r").digest == ""


async def test_a_queue_that_is_asked_for_is_the_runs(house: House) -> None:
    """Also where it is the usual one, and the workflow has one of its own: as by ``Client.start``."""
    await house.worker(app, WorkerConfig(queues=("default", "gpu")))

    handle = await (await house.client()).publish_start(renders, queue="default")
    await handle.result(timeout=60)

    assert house.run(handle.run_id).queue == "default"
