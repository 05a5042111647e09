"""The pure parts of a projector: what follows what, who does what, how late it is, and who is told."""

from __future__ import annotations

import datetime as dt
from itertools import pairwise
from typing import Any

import pytest

from tidewheel.broker.alerts import read_alert
from tidewheel.broker.memory import MemoryBroker
from tidewheel.broker.topology import ALERTS, Binding, Queue, Topology, bus_topology
from tidewheel.journal.public import PublicEvent
from tidewheel.projector.alerts import GAP_DETECTED, LAG_HIGH, PER_MINUTE_MAX, Alarm, on_the_bus
from tidewheel.projector.folding import follow
from tidewheel.projector.lag import Lag
from tidewheel.projector.shards import shards_of
from tidewheel.workers.alarms import Alarms
from tidewheel.workers.clock import StoreClock

NOW = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)


def an_event(seq: int, prev: int | None, **options: Any) -> PublicEvent:
    """Return an event of a run."""
    known = {"run_id": "r", "event_type": "SignalAccepted", "workflow": "w", "idempotency_key": ""}
    return PublicEvent(run_seq=seq, prev_seq=prev, **(known | options))


CHAIN = [an_event(0, None), *(an_event(seq, prev) for prev, seq in pairwise([0, 2, 3, 7]))]


@pytest.mark.parametrize(
    ("seq", "places", "taken", "upto"),
    [
        (-1, [0, 1, 2, 3], [0, 2, 3, 7], 7),
        (-1, [3, 1, 0, 2, 2, 0], [0, 2, 3, 7], 7),
        (2, [0, 1, 2], [3], 3),
        (0, [2, 3], [], 0),
        (-1, [0, 2, 3], [0], 0),
        (7, [0, 1, 2, 3], [], 7),
        (9, [3], [], 9),
        (3, [], [], 3),
    ],
)
def test_an_event_is_taken_after_the_one_it_names(
    seq: int, places: list[int], taken: list[int], upto: int
) -> None:
    """Whatever the order they come in and however often; what was seen is not taken again."""
    heard: list[int] = []

    followed = follow(seq, [CHAIN[place] for place in places], lambda event: heard.append(event.run_seq))

    assert heard == taken
    assert [event.run_seq for event in followed.taken] == taken
    assert (followed.seq, followed.broken) == (upto, None)


def test_an_event_that_cannot_be_taken_stops_there() -> None:
    """What was taken before stays, what follows has to wait, and the reason is told."""

    def take(event: PublicEvent) -> None:
        if event.run_seq == 3:
            raise KeyError("error")

    followed = follow(-1, CHAIN, take)

    assert (followed.seq, followed.broken, followed.reason) == (2, CHAIN[2], "KeyError: 'error'")


@pytest.mark.parametrize("count", range(1, 12))
def test_every_shard_has_exactly_one_projector(count: int) -> None:
    """They are dealt out evenly, and everybody computes the same."""
    members = [f"member-{number}" for number in range(count)]

    shares = [shards_of(member, members[::-1], 8) for member in members]

    assert sorted(shard for share in shares for shard in share) == list(range(8))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_member_counts_itself_whatever_it_was_told() -> None:
    """A list in which it is missing is old."""
    assert shards_of("b", [], 8) == frozenset(range(8))
    assert shards_of("b", ["a"], 2) == frozenset({1})


def test_a_lag_is_told_of_when_it_begins_and_each_minute() -> None:
    """It is over well below the limit, not at it; an event without a time says nothing."""
    lag = Lag(5.0)

    def told(late_s: float, at_s: float) -> bool:
        now = NOW + dt.timedelta(seconds=at_s)
        happened = now - dt.timedelta(seconds=late_s)
        return lag.note([an_event(0, None, persisted_at=happened), an_event(1, 0, emitted_at=now)], now)

    assert [told(1, 0), told(5, 1), told(5.1, 2), told(9, 3), told(4, 4), told(6, 5)] == [
        False,
        False,
        True,
        False,
        False,
        False,
    ]
    assert [told(6, 62), told(2, 63), told(6, 64)] == [True, False, True]
    assert lag.seconds == 6
    assert not lag.note([an_event(0, None)], NOW)
    assert lag.note([an_event(0, None, emitted_at=NOW - dt.timedelta(days=1))], NOW + dt.timedelta(hours=1))
    assert not lag.note([an_event(0, None, emitted_at=NOW + dt.timedelta(days=1))], NOW)
    assert lag.seconds == 0


def test_alerts_of_a_storm_are_counted() -> None:
    """Some of them are raised, and the next that is says how many were not; each name for itself."""
    raised: list[dict[str, Any]] = []
    now = 0.0
    alarm = Alarm(lambda **alert: raised.append(alert), "default", lambda: now)

    told = [alarm.raise_alert(GAP_DETECTED, "x", run_id=f"r-{number}") for number in range(100)]
    assert alarm.raise_alert(LAG_HIGH, "y", lag_s=9)
    now = 61.0
    assert alarm.raise_alert(GAP_DETECTED, "z")

    assert told == [True] * PER_MINUTE_MAX + [False] * (100 - PER_MINUTE_MAX)
    assert raised[-1]["details"] == {"not_told_before": 100 - PER_MINUTE_MAX}
    assert [alert["severity"] for alert in raised[-2:]] == ["P2", "P1"]
    assert raised[0]["namespace"] == "default"


async def test_an_alert_goes_to_the_log_and_the_bus(caplog: pytest.LogCaptureFixture) -> None:
    """With its name, its severity, the run and the details."""
    broker = MemoryBroker()
    await broker.declare(bus_topology())
    queue = Topology(queues=(Queue(name="alerts"),), bindings=(Binding(ALERTS, "alerts", "shop.#"),))
    await broker.declare(queue)
    alarms, clock = Alarms(broker), StoreClock()
    clock.tell(dt.datetime(2026, 3, 1, tzinfo=dt.UTC))

    Alarm(on_the_bus(alarms, clock), "shop", lambda: 0.0).raise_alert(
        LAG_HIGH, "it is late", run_id="order-42", lag_s=7
    )
    await alarms.close()

    assert any(f"{LAG_HIGH} (P2): it is late" in line for line in caplog.messages)
    async with broker.consume("alerts", prefetch=1) as deliveries:
        alert = read_alert((await anext(deliveries)).message)
    assert (alert.alert, alert.severity, alert.run_id) == (LAG_HIGH, "P2", "order-42")
    assert alert.details == {"lag_s": 7}
