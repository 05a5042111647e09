"""Any number of keepers: what is due is done once, and they share it."""

from __future__ import annotations

import datetime as dt
import signal

from tests.faults.nursery import Nursery
from tests.faults.place import Place, eventually
from tests.faults.shop import one
from tidewheel.journal import events as ev
from tidewheel.sdk.limits import Limits
from tidewheel.sdk.starting import start_of
from tidewheel.store.append import Append, Moves
from tidewheel.store.records import RunRef

TIMERS, KEEPERS = 200, 3


async def _sleeping(place: Place) -> None:
    """Start runs that sleep, and whose timers are all due at the same time, soon."""
    start, _ = start_of(one, ("x",), idempotency_key=None, queue=None, limits=Limits())
    soon = await place.store.now() + dt.timedelta(seconds=2)
    sleeps: list[ev.Event] = [
        ev.TimerScheduled(promise_id="0", duration=1.0, fire_at=soon),
        ev.ExecutionAwaiting(waiting_on=["0"], kind="single"),
    ]
    for number in range(TIMERS):
        run = RunRef("default", f"r{number}")
        moves = Moves(expected=b"", token=b"asleep", base_seq=0, events=sleeps)
        await place.store.append([Append(run=run, start=start), Append(run=run, moves=moves)])


async def test_keepers_share_what_is_due_and_do_each_thing_once(place: Place, nursery: Nursery) -> None:
    """Three of them fire two hundred timers: each timer once, and each keeper some."""
    keepers = [
        await nursery.start("tests.faults.program:keep", folder=str(place.folder), batch=5)
        for _ in range(KEEPERS)
    ]
    await eventually(lambda: all("ready" in keeper.said() for keeper in keepers), "their start")

    await _sleeping(place)
    await eventually(lambda: place.rows("SELECT count(*) FROM tidewheel_timers") == [(0,)], "all timers")
    for keeper in keepers:
        keeper.send(signal.SIGTERM)
    fired = [await keeper.answer() for keeper in keepers]

    assert sum(fired) == TIMERS
    assert all(fired), fired
    for number in range(TIMERS):
        events = [entry.event for entry in await place.journal(f"r{number}")]
        assert [type(event) for event in events].count(ev.TimerFired) == 1
