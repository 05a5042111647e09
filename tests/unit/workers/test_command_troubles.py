"""Commands while things go wrong: none is lost, none is followed twice, and none is blamed for a store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.unit.workers.house import House
from tests.unit.workers.postbox import Postbox
from tidewheel import App, Context, RunCancelled, current_task
from tidewheel.broker.message import DELIVERED_TOO_OFTEN, KEY
from tidewheel.broker.protocol import Delivery
from tidewheel.broker.topology import COMMAND_DELIVERY_LIMIT, COMMANDS
from tidewheel.journal import events as ev
from tidewheel.store.append import Append, Appended, Moves, Start
from tidewheel.store.records import RunRef
from tidewheel.workers.config import WorkerConfig
from tidewheel.workers.worker import Worker

MINUTE = 60.0
HOUR = 3600.0
DEAD = "dead-worker"
OPENS = pytest.mark.parametrize("opens", [True, False], ids=["opens", "stores"])


class Shop:
    """An app that notes what was executed, each with its attempt."""

    def __init__(self) -> None:
        self.app = App("troubles")
        self.executed: list[tuple[str, int]] = []
        self.slow_s = 0.0

        @self.app.task
        async def effect(name: str) -> str:
            self.executed.append((name, current_task().attempt))
            await asyncio.sleep(self.slow_s)
            return name

        @self.app.workflow
        async def sells(ctx: Context, name: str) -> str:
            return await ctx.invoke(effect, name)

        @self.app.workflow
        async def waits(ctx: Context) -> str:
            return await ctx.signal("word", into=str)

    @property
    def digest(self) -> str:
        """What the code of its workflow is known by."""
        return self.app.workflows["sells"].digest


@pytest.fixture
def shop() -> Shop:
    """Nothing was executed yet."""
    return Shop()


async def mortal(house: House, shop: Shop, config: WorkerConfig | None = None) -> Worker:
    """Begin a worker on a connection of its own, which ``kill`` ends."""
    worker = Worker(
        shop.app, house.store, house.broker.connect(), config=config, secret=b"mortal", threads=False
    )
    await worker.start()
    return worker


async def kill(worker: Worker) -> None:
    """Let a worker be gone: it says nothing to anybody, and the broker gives what it held to others."""
    await worker.services.broker.close()
    for task in [*worker._chores, *worker.services._background]:
        task.cancel()
    for session in worker._sessions.values():
        session.drop()
        session._is_over = True
        if session._waiting is not None:
            session._waiting.cancel()


class Dying:
    """A worker that takes one command, and dies when told to: its delivery goes back."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._death = asyncio.Event()
        self._holding: asyncio.Task[None] | None = None

    async def take(self) -> Delivery:
        """Take a command."""
        got: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()
        self._holding = asyncio.create_task(self._hold(got))
        return await got

    async def _hold(self, got: asyncio.Future[Delivery]) -> None:
        async with self._house.broker.consume(COMMANDS, prefetch=1) as deliveries:
            got.set_result(await anext(deliveries))
            await self._death.wait()

    async def die(self) -> None:
        """Be gone."""
        assert self._holding is not None
        self._death.set()
        await self._holding


async def begun(house: House, shop: Shop, delivery: Delivery, *events: ev.Event) -> None:
    """Write what a worker writes that begins the run of a command and then dies."""
    moves = Moves(
        expected=b"",
        token=b"theirs",
        base_seq=0,
        events=list(events),
        owner=DEAD,
        message_id=delivery.message.message_id,
    )
    start = Start(workflow="sells", digest=shop.digest, queue="default", input=["pen"])
    await house.store.append([Append(run=RunRef("default", "r"), start=start, moves=moves)])


SCHEDULES = (
    ev.InvokeScheduled(promise_id="0", function_name="effect", input=["pen"], dispatch="inline"),
    ev.ExecutionAwaiting(waiting_on=["0"], kind="single"),
)


# Workers that die


async def test_a_run_whose_worker_died_after_its_start_is_taken_over_at_once(
    house: House, postbox: Postbox, shop: Shop
) -> None:
    """The command comes again, which says that the worker is gone: nobody waits for a lease or a keeper.

    It is one run, and the attempt that may have been made counts.
    """
    dying = Dying(house)
    await postbox.start("sells", "pen", run_id="r", message_id="m")
    await begun(house, shop, await dying.take(), *SCHEDULES)
    await dying.die()

    await house.worker(shop.app)
    await house.until(lambda: house.run("r").ended, seconds=1.0)

    assert shop.executed == [("pen", 2)]
    assert house.kinds("r")["ExecutionStarted"] == 1
    assert await postbox.runs() == {"r": "COMPLETED"}
    assert (await postbox.waiting(), await postbox.reasons()) == (0, [])


async def test_a_run_that_two_workers_died_with_is_left_to_the_keeper(
    house: House, postbox: Postbox, shop: Shop
) -> None:
    """They may have died of it: from then on its command executes nothing, and the run is not forgotten."""
    await postbox.start("sells", "pen", run_id="r", message_id="m")
    first, second = Dying(house), Dying(house)
    await begun(house, shop, await first.take(), *SCHEDULES)
    await first.die()
    await second.take()
    await second.die()

    await house.worker(shop.app)
    await asyncio.sleep(MINUTE / 2)
    before = list(shop.executed)
    await house.keeper()
    await house.until(lambda: house.run("r").ended, seconds=10 * MINUTE)

    assert (before, shop.executed) == ([], [("pen", 2)])
    assert (await postbox.waiting(), await postbox.reasons()) == (0, [])


async def test_a_start_whose_worker_died_before_it_was_written_is_written_by_another(
    house: House, postbox: Postbox, shop: Shop
) -> None:
    """Once, and the run is executed at its first attempt."""
    dying = Dying(house)
    await postbox.start("sells", "pen", run_id="r", message_id="m")
    await dying.take()
    await dying.die()

    await house.worker(shop.app)
    await house.until(lambda: bool(house.store.rows.runs) and house.run("r").ended, seconds=1.0)

    assert shop.executed == [("pen", 1)]
    assert await postbox.runs() == {"r": "COMPLETED"}
    # It may have died of the run's code: this time the store knows of the run before that is begun.
    first, *_ = house.store.rows.journals[house.run("r").key]
    assert first.last_seq == 0


async def test_a_start_that_comes_again_after_the_run_has_ended_changes_nothing(
    house: House, postbox: Postbox, shop: Shop
) -> None:
    """Its worker died between the run's last commit and the acknowledgement."""
    dying = Dying(house)
    await postbox.start("sells", "pen", run_id="r", message_id="m")
    await begun(house, shop, await dying.take(), ev.ExecutionCompleted(result=ev.Result(ok="theirs")))
    await dying.die()

    await house.worker(shop.app)
    await asyncio.sleep(5)

    assert (shop.executed, await postbox.runs()) == ([], {"r": "COMPLETED"})
    assert (await postbox.waiting(), await postbox.reasons()) == (0, [])


async def test_a_start_that_comes_again_does_not_disturb_whoever_has_the_run(
    house: House, postbox: Postbox, shop: Shop
) -> None:
    """Another message for the same run says nothing of its worker, however often it was delivered."""
    shop.slow_s = 5.0
    await house.worker(shop.app, WorkerConfig(prefetch=1))  # it has its hands full with the first
    await postbox.start("sells", "pen", run_id="r", message_id="m")
    await house.until(lambda: bool(shop.executed))

    dying = Dying(house)
    await postbox.start("sells", "pen", run_id="r", message_id="another")
    delivery = await dying.take()
    await dying.die()
    await house.worker(shop.app)
    await house.until(lambda: house.run("r").ended)

    assert delivery.message.message_id == "another"
    assert shop.executed == [("pen", 1)]
    assert house.kinds("r")["InvokeRetrying"] == 0


@OPENS
async def test_a_worker_that_dies_with_many_commands_loses_none(
    house: House, postbox: Postbox, shop: Shop, opens: bool
) -> None:
    """Whatever it has begun, written or only taken: each of them is one run that ends."""
    shop.slow_s = 0.5
    first = await mortal(house, shop, WorkerConfig(opens=opens, slots=3, prefetch=8))
    for number in range(20):
        await postbox.start("sells", str(number), run_id=f"r{number}", message_id=f"m{number}")
    await house.until(lambda: len(shop.executed) >= 3)

    await kill(first)
    await house.worker(shop.app, WorkerConfig(opens=opens))
    await house.keeper()
    await house.until(lambda: all(run.ended for run in house.store.rows.runs.values()), seconds=HOUR)

    assert await postbox.runs() == {f"r{number}": "COMPLETED" for number in range(20)}
    assert len(shop.executed) == len(set(shop.executed))
    assert await postbox.reasons() == []


async def test_two_workers_that_have_the_same_command_execute_each_step_once(
    house: House, postbox: Postbox, shop: Shop
) -> None:
    """One of them has the run; the other finds it there, and leaves it alone."""
    shop.slow_s = 0.1
    for _ in range(3):
        await house.worker(shop.app)

    for number in range(10):
        for _ in range(4):
            await postbox.start("sells", str(number), run_id=f"r{number}", message_id=f"m{number}")
    await house.until(lambda: len(house.store.rows.runs) == 10)
    await house.until(lambda: all(run.ended for run in house.store.rows.runs.values()))

    assert sorted(shop.executed) == sorted((str(number), 1) for number in range(10))
    assert await postbox.reasons() == []


async def test_a_command_that_workers_die_with_is_a_dead_letter_in_the_end(
    house: House, postbox: Postbox
) -> None:
    """It is delivered so often, and then kept for people: it does not go round for ever."""
    await postbox.start("sells", "pen", run_id="r")
    for _ in range(COMMAND_DELIVERY_LIMIT):
        dying = Dying(house)
        await dying.take()
        await dying.die()

    assert (await postbox.waiting(), await postbox.reasons()) == (0, [DELIVERED_TOO_OFTEN])


# A store that is away


@OPENS
@pytest.mark.parametrize("away_s", [1.0, MINUTE / 2, 10 * MINUTE], ids=["briefly", "a while", "long"])
async def test_commands_wait_for_a_store_that_is_away(
    house: House, postbox: Postbox, shop: Shop, away_s: float, opens: bool
) -> None:
    """That it is says nothing against them: all are followed when it is back, and none is a dead letter."""
    await house.worker(shop.app, WorkerConfig(opens=opens))
    await house.keeper()
    client = await house.client()
    told, stopped = await client.start("waits", run_id="told"), await client.start("waits", run_id="stopped")
    await house.until(lambda: house.kinds("told")["ExecutionAwaiting"] == 1)
    await house.until(lambda: house.kinds("stopped")["ExecutionAwaiting"] == 1)

    house.store.is_down = True
    await postbox.start("sells", "pen", run_id="r", message_id="m")
    await postbox.start("unknown", run_id="others")
    await postbox.signal("told", "word", payload="hello")
    await postbox.cancel("stopped")
    await asyncio.sleep(away_s)
    house.store.is_down = False

    await house.until(lambda: len(house.store.rows.runs) == 4)
    await house.until(lambda: house.run("r").ended)
    assert await told.result(timeout=MINUTE) == "hello"
    with pytest.raises(RunCancelled):
        await stopped.result(timeout=MINUTE)
    assert shop.executed == [("pen", 1)]
    assert (await postbox.waiting(), await postbox.reasons()) == (0, [])


async def test_a_command_is_the_brokers_until_it_is_written(
    house: House, postbox: Postbox, shop: Shop
) -> None:
    """However long the store is away: a worker that dies then has not let go of what it had in hand.

    A hint is let go after a while, since the store knows of its run; of these it does not.
    """
    config = WorkerConfig(hold_s=5.0)
    worker = await mortal(house, shop, config)
    house.store.is_down = True
    for number in range(4):
        await postbox.start("sells", str(number), run_id=f"r{number}", message_id=f"m{number}")
    await postbox.start("unknown", run_id="others")

    await asyncio.sleep(20 * config.hold_s)
    await kill(worker)

    assert await postbox.waiting() >= 5
    assert await postbox.reasons() == []
    house.store.is_down = False
    await house.worker(shop.app)
    await house.until(lambda: len(house.store.rows.runs) == 5)
    await house.until(lambda: len([one for one in house.store.rows.runs.values() if one.ended]) == 4)
    assert sorted(shop.executed) == [(str(number), 1) for number in range(4)]


@OPENS
async def test_a_command_is_not_held_for_as_long_as_the_store_is_away(
    house: House, postbox: Postbox, shop: Shop, opens: bool
) -> None:
    """A broker takes whoever holds a delivery for long for lost: it is put back in time, as a new one."""
    worker = await house.worker(shop.app, WorkerConfig(opens=opens, hold_s=5.0))
    house.store.is_down = True
    await postbox.start("sells", "pen", run_id="r", message_id="m")
    await asyncio.sleep(MINUTE)

    again = [one for one in house.broker.published if not one.exchange and one.routing_key == COMMANDS]
    assert 2 <= len(again) <= MINUTE / 5.0
    assert {(one.message.message_id, one.message.headers[KEY]) for one in again} == {("m", "start")}
    house.store.is_down = False
    await house.until(lambda: bool(house.store.rows.runs) and house.run("r").ended)
    await worker.stop()
    assert (shop.executed, await postbox.waiting()) == ([("pen", 1)], 0)


async def test_a_run_that_is_held_for_long_is_not_started_again(
    house: House, postbox: Postbox, shop: Shop
) -> None:
    """Its worker lets go of the command while the step goes on: then it looks, and finds all written."""
    shop.slow_s = MINUTE
    await house.worker(shop.app, WorkerConfig(hold_s=5.0))

    await postbox.start("sells", "pen", run_id="r", message_id="m")
    await house.until(lambda: bool(house.store.rows.runs) and house.run("r").ended, seconds=2 * MINUTE)

    assert shop.executed == [("pen", 1)]
    assert await postbox.runs() == {"r": "COMPLETED"}
    assert (await postbox.waiting(), await postbox.reasons()) == (0, [])


@OPENS
@pytest.mark.parametrize("lost", ["lost_replies", "lost_requests"])
async def test_a_commit_of_which_nobody_knows_is_made_once(
    house: House, postbox: Postbox, shop: Shop, lost: str, opens: bool
) -> None:
    """The same is asked for again, and the store finds it or does not."""
    await house.worker(shop.app, WorkerConfig(opens=opens))
    setattr(house.store, lost, 2)

    await postbox.start("sells", "pen", run_id="r", message_id="m")
    await house.until(lambda: bool(house.store.rows.runs) and house.run("r").ended)

    assert [name for name, _ in shop.executed] == ["pen"]
    assert house.kinds("r")["ExecutionStarted"] == 1
    assert await postbox.reasons() == []


async def test_a_signal_whose_reply_was_lost_arrives_once(house: House, postbox: Postbox, shop: Shop) -> None:
    """Its message's id tells that it is the same; without one it is the same for as long as it is in hand."""
    await house.worker(shop.app)
    handle = await (await house.client()).start("waits", run_id="r")
    await house.until(lambda: house.kinds("r")["ExecutionAwaiting"] == 1)
    house.store.lost_replies = 1

    await postbox.signal("r", "word", payload="hello")

    assert await handle.result(timeout=MINUTE) == "hello"
    assert house.kinds("r")["SignalDelivered"] == 1
    assert await postbox.reasons() == []


async def test_a_command_that_the_store_cannot_write_at_all_holds_up_nobody(
    house: House, postbox: Postbox, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something is wrong that nobody has thought of: after some tries it is kept for people."""
    append = house.store.append

    async def refusing(batch: Sequence[Append]) -> list[Appended]:
        if any(one.run.run_id == "odd" for one in batch):
            raise RuntimeError("this is odd")
        return await append(batch)

    monkeypatch.setattr(house.store, "append", refusing)
    await house.worker(shop.app, WorkerConfig(prefetch=1))

    await postbox.start("sells", "odd", run_id="odd")
    await asyncio.sleep(0.01)
    await postbox.signal("odd", "word")
    await asyncio.sleep(0.01)
    await postbox.start("sells", "pen", run_id="r")
    await house.until(lambda: bool(house.store.rows.runs) and house.run("r").ended)
    await asyncio.sleep(5)

    assert await postbox.reasons() == [DELIVERED_TOO_OFTEN] * 2


# Stopping


@OPENS
async def test_a_worker_that_stops_gives_commands_back_that_it_could_not_follow(
    house: House, postbox: Postbox, shop: Shop, opens: bool
) -> None:
    """The store is away: what is in hand is another's, at once, and all of it is followed."""
    worker = await house.worker(shop.app, WorkerConfig(opens=opens))
    house.store.is_down = True
    for number in range(5):
        await postbox.start("sells", str(number), run_id=f"r{number}", message_id=f"m{number}")
    await postbox.start("unknown", run_id="others")
    await asyncio.sleep(1)

    await worker.stop(grace_s=0.0)
    given_back = await postbox.waiting()
    house.store.is_down = False
    await house.worker(shop.app, WorkerConfig(opens=opens))
    await house.until(lambda: len(house.store.rows.runs) == 6)
    await house.until(lambda: len([one for one in house.store.rows.runs.values() if one.ended]) == 5)

    assert given_back == 6
    assert sorted(shop.executed) == [(str(number), 1) for number in range(5)]
    assert await postbox.reasons() == []


async def test_a_worker_that_stops_leaves_commands_that_it_has_not_taken(
    house: House, postbox: Postbox, shop: Shop
) -> None:
    """They are not delivered to it any more: nothing counts against them."""
    worker = await house.worker(shop.app, WorkerConfig(prefetch=1, slots=1))
    shop.slow_s = MINUTE
    for number in range(5):
        await postbox.start("sells", str(number), run_id=f"r{number}", message_id=f"m{number}")
    await house.until(lambda: bool(shop.executed))

    await worker.stop(grace_s=0.0)
    waiting = await postbox.waiting()

    assert waiting == 5
    async with house.broker.consume(COMMANDS, prefetch=5) as deliveries:
        counts = [(await anext(deliveries)).earlier_deliveries for _ in range(5)]
    assert counts == [1, 0, 0, 0, 0]


async def test_a_run_that_was_begun_by_command_is_handed_back_like_any_other(
    house: House, postbox: Postbox, shop: Shop
) -> None:
    """Another worker goes on at once, and the client is told of the end."""
    shop.slow_s = MINUTE
    worker = await house.worker(shop.app)
    client = await house.client()
    await client.listen()
    handle = await client.publish_start("sells", "pen")
    await house.until(lambda: bool(shop.executed))
    await worker.stop(grace_s=0.0)
    shop.slow_s = 0.0

    await house.worker(shop.app)
    result = await handle.result(timeout=10)

    assert result == "pen"
    assert shop.executed == [("pen", 1), ("pen", 2)]
    assert house.run(handle.run_id).reply_to == (client._connection.replies.queue,)
