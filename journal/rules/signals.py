"""CF, signals: a delivery is buffered, then consumed by one wait, oldest first.

Deliveries are counted per signal name.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING

from msgspec import UNSET

from tidewheel.journal.events import Entry, ExecutionAwaiting, SignalDelivered, SignalReceived
from tidewheel.journal.jsonform import canonical, shown
from tidewheel.journal.rules.registry import Found, rule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@rule("CF-2", SignalDelivered, SignalReceived)
def signal_received_requires_delivered(entries: Sequence[Entry]) -> Iterator[Found]:
    """SignalReceived requires a preceding SignalDelivered of the same name, delivery and payload."""
    delivered: defaultdict[tuple[str, int], set[bytes]] = defaultdict(set)
    for entry in entries:
        match entry.event:
            case SignalDelivered(signal_name=name, delivery_id=number, payload=payload):
                delivered[name, number].add(canonical(payload))
            case SignalReceived(signal_name=name, delivery_id=number, payload=payload):
                if (name, number) not in delivered:
                    yield entry, f"SignalReceived of delivery {number} of {shown(name)}, which did not arrive"
                elif canonical(payload) not in delivered[name, number]:
                    yield entry, f"delivery {number} of {shown(name)} arrived with another payload"


@rule("CF-3", SignalReceived)
def signal_consumed_once(entries: Sequence[Entry]) -> Iterator[Found]:
    """Each delivery is consumed by at most one SignalReceived."""
    consumed: dict[tuple[str, int], int] = {}
    for entry in entries:
        match entry.event:
            case SignalReceived(signal_name=name, delivery_id=number):
                if (name, number) in consumed:
                    at = consumed[name, number]
                    yield entry, f"delivery {number} of {shown(name)} was already consumed at {at}"
                consumed.setdefault((name, number), entry.run_seq)


@rule("CF-4", ExecutionAwaiting)
def await_signal_consistent(entries: Sequence[Entry]) -> Iterator[Found]:
    """A wait of kind signal has its signal_promise_id as the single waiting_on."""
    for entry in entries:
        match entry.event:
            case ExecutionAwaiting(kind="signal", waiting_on=[only], signal_promise_id=pid) if pid == only:
                continue
            case ExecutionAwaiting(kind="signal", signal_promise_id=pid):
                has = "it has none" if pid is UNSET else f"that is {pid}"
                yield entry, f"a signal wait must wait on its signal_promise_id alone; {has}"


@rule("CF-13", SignalDelivered, SignalReceived)
def deliveries_consumed_in_order(entries: Sequence[Entry]) -> Iterator[Found]:
    """The oldest delivery of a name is consumed first; unknown ones are CF-2's, consumed ones CF-3's."""
    queues: defaultdict[str, deque[int]] = defaultdict(deque)
    open_: set[tuple[str, int]] = set()
    consumed: set[tuple[str, int]] = set()
    for entry in entries:
        match entry.event:
            case SignalDelivered(signal_name=name, delivery_id=number):
                if (name, number) not in consumed:
                    queues[name].append(number)
                    open_.add((name, number))
            case SignalReceived(signal_name=name, delivery_id=number):
                queue = queues[name]
                while queue and (name, queue[0]) in consumed:
                    queue.popleft()
                if (name, number) in open_ and queue[0] != number:
                    yield entry, f"delivery {number} of {shown(name)} was consumed before delivery {queue[0]}"
                open_.discard((name, number))
                consumed.add((name, number))


@rule("CF-14", SignalDelivered)
def delivery_ids_rise(entries: Sequence[Entry]) -> Iterator[Found]:
    """The delivery ids of a signal name rise."""
    latest: dict[str, int] = {}
    for entry in entries:
        match entry.event:
            case SignalDelivered(signal_name=name, delivery_id=number):
                if number <= latest.get(name, -1):
                    yield entry, f"delivery {number} of {shown(name)} follows delivery {latest[name]}"
                latest[name] = number


@rule("CF-17", SignalReceived)
def signal_wait_receives_once(entries: Sequence[Entry]) -> Iterator[Found]:
    """A promise has at most one SignalReceived; a delivery that is consumed again is CF-3's."""
    received: dict[str, int] = {}
    consumed: set[tuple[str, int]] = set()
    for entry in entries:
        match entry.event:
            case SignalReceived(promise_id=pid, signal_name=name, delivery_id=number):
                if pid in received and (name, number) not in consumed:
                    yield entry, f"the signal wait {pid} has already received a signal at {received[pid]}"
                received.setdefault(pid, entry.run_seq)
                consumed.add((name, number))
