"""What clients do in the simulated world, and what must come of it.

An errand is one run and everything somebody does to it. It is written down outside of all simulated
processes, as in a database of the user's own: a client that is killed takes it up again. What was
acknowledged to a client is written down the moment it is.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tests.simulation import workflows as wf
from tidewheel.broker.commands import CancelCommand, Command, SignalCommand
from tidewheel.broker.errors import BrokerUnavailable
from tidewheel.sdk.client import Client
from tidewheel.sdk.errors import AlreadyResolved, NotFound, RunCancelled, RunFailed, SignalRejected
from tidewheel.sdk.handle import Handle
from tidewheel.store.errors import CommitUnknown, StoreUnavailable

T = TypeVar("T")
Outcome = tuple[str, Any]

#: How an errand ends where its run was cancelled.
CANCELLED: Outcome = ("cancelled", None)
#: How many errands start their runs by messages, how many of those send again what was taken, and how many of
#: their signals and cancels are messages too.
PUBLISHED_PART, REPEATED_PART, MESSAGES_PART = 0.5, 0.3, 0.5


@dataclass(eq=False, slots=True)
class Errand:
    """One run, from the outside."""

    number: int
    kind: str
    workflow: Callable[..., Any]
    args: tuple[Any, ...]
    #: Every outcome that is right.
    wanted: tuple[Outcome, ...]
    #: Whether its run is started by a message, and told by some. What the broker has taken is sent again only
    #: if that is somebody's habit.
    is_published: bool = False
    is_repeated: bool = False
    is_taken: bool = False
    is_cancel_taken: bool = False
    #: When it is cancelled, in seconds after its start, if at all.
    cancel_after_s: float | None = None
    items: list[int] = field(default_factory=list)
    run_ids: set[str] = field(default_factory=set)
    #: Payloads whose signals were acknowledged, those that were refused, and those that went as messages: the
    #: broker has such a one. It is followed later, or is a dead letter if the run has ended by then.
    acknowledged: set[object] = field(default_factory=set)
    refused: set[object] = field(default_factory=set)
    sent: set[object] = field(default_factory=set)
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def key(self) -> str:
        """Its idempotency key, or the id of its run where that is started by messages."""
        return f"errand-{self.number}"

    @property
    def is_done(self) -> bool:
        """Whether somebody was told the result."""
        return bool(self.outcomes)


# What there is to do


def draw_errand(chance: random.Random, number: int) -> Errand:
    """Draw one more thing to do."""
    kind, weight = zip(*_KINDS.items(), strict=True)
    (name,) = chance.choices(kind, [share for _, share in weight])
    n = chance.randrange(1, 60)
    workflow, args, value = _KINDS[name][0](chance, n)
    errand = Errand(number, name, workflow, args, (value,))
    errand.is_published = chance.random() < PUBLISHED_PART
    errand.is_repeated = chance.random() < REPEATED_PART
    if name == "cancellable":
        errand.cancel_after_s = chance.choice((0.0, 0.01, 1.0, 10.0)) * chance.random()
    elif chance.random() < 0.1:
        errand.cancel_after_s = 5.0 * chance.random()
        errand.wanted = (value, CANCELLED)
    if name == "mailbox":
        errand.items = list(value[1])
    return errand


Drawn = tuple[Callable[..., Any], tuple[Any, ...], Outcome]


def _sequence(_chance: random.Random, n: int) -> Drawn:
    total = 3 * (n + 1) + 7 * n + (n + 100) + (n + 1000)
    return wf.sequence, (n,), ("ok", total)


def _family_of(n: int, depth: int) -> int:
    return 2 * n if depth == 0 else 2 * n + _family_of(n, depth - 1) + 2 * (n + 1)


def _family(chance: random.Random, n: int) -> Drawn:
    depth = chance.randrange(4)
    return wf.family, (n, depth), ("ok", _family_of(n, depth))


def _crowd(_chance: random.Random, n: int) -> Drawn:
    found = [n + place for place in range(n % 4 + 1)] + [2 * n, n + 100]
    found += [2 * (n + place) for place in range(3)] + [3 * (n + place) + 10 for place in range(3)]
    return wf.crowd, (n,), ("ok", sorted(found))


def _mailbox(chance: random.Random, n: int) -> Drawn:
    items = [1000 * n + place for place in range(chance.randrange(1, 9))]
    return wf.mailbox, (len(items), chance.randrange(1, 4), []), ("ok", items)


def _careful(_chance: random.Random, n: int) -> Drawn:
    return wf.careful, (n,), ("ok", ["spent", f"{n} is odd" if n % 2 else n, "LookupError"])


def _sleeper(chance: random.Random, n: int) -> Drawn:
    return wf.sleeper, (n, chance.choice((0.3, 5.0, 40.0, 200.0)) * chance.random()), ("ok", n + 3)


def _plain(workflow: Callable[..., Any], value: Callable[[int], Any]) -> Callable[[Any, int], Drawn]:
    return lambda _chance, n: (workflow, (n,), ("ok", value(n)))


#: How each kind is drawn, and how often.
_KINDS: dict[str, tuple[Callable[[random.Random, int], Drawn], int]] = {
    "sequence": (_sequence, 3),
    "family": (_family, 3),
    "crowd": (_crowd, 2),
    "mailbox": (_mailbox, 4),
    "careful": (_careful, 2),
    "sleeper": (_sleeper, 2),
    "first_of_many": (_plain(wf.first_of_many, lambda n: 2 * n), 2),
    "impatient": (_plain(wf.impatient, lambda n: f"step-{n + 2}"), 2),
    "comes_back": (_plain(wf.comes_back, lambda n: 2 * n), 2),
    "approved": (_plain(wf.approved, lambda n: f"{n}-{n + 1}-True-{n + 2}"), 2),
    "banker": (_plain(wf.banker, lambda _n: 10), 2),
    "labourer": (_plain(wf.labourer, lambda n: 8 * n), 2),
    "gambler": (_plain(wf.gambler, lambda _n: True), 2),
    "doomed": (lambda _chance, n: (wf.doomed, (n,), ("failed", "LookupError")), 1),
    "cancellable": (lambda _chance, n: (wf.cancellable, (n,), CANCELLED), 3),
}


# Doing it


async def insist(call: Callable[[], Awaitable[T]]) -> T:
    """Do it until the store has answered, or the broker."""
    while True:
        try:
            return await call()
        except (StoreUnavailable, CommitUnknown, BrokerUnavailable):
            await asyncio.sleep(0.3)


async def run_errand(client: Client, errand: Errand, chance: random.Random) -> None:
    """Start the run, do what is to be done to it, and wait for its result; again, if it was begun before."""
    handle = await insist(lambda: _start(client, errand, chance))
    errand.run_ids.add(handle.run_id)
    # Who sends a message names the run by what is in it, and is told nothing.
    bus = _Bus(client, handle, chance) if errand.is_published else None
    async with asyncio.TaskGroup() as group:
        group.create_task(_tell(handle, errand, chance, bus))
        if errand.cancel_after_s is not None:
            group.create_task(_cancel(handle, errand, errand.cancel_after_s, bus))
        if chance.random() < 0.3:
            group.create_task(_be_curious(handle, chance))
        how, value = await insist(lambda: _outcome(handle, chance))
    if errand.is_published and errand.kind == "mailbox" and how == "ok":
        value = sorted(value)  # messages are followed in whatever order
    errand.outcomes.append((how, value))


async def _start(client: Client, errand: Errand, chance: random.Random) -> Handle[Any]:
    """Start the run, by the store or by a message; whoever takes the errand up again may do it otherwise."""
    if not errand.is_published:
        return await client.start(errand.workflow, *errand.args, idempotency_key=errand.key)
    if errand.is_taken and not errand.is_repeated:
        handle = client.handle(errand.key)
        await there(handle)
        return handle
    door = client.publish_start if chance.random() < 0.8 else client.start
    started: Handle[Any] = await door(errand.workflow, *errand.args, run_id=errand.key)
    errand.is_taken = True
    return started


class _Bus:
    """Sends commands to a run that is started by a message, now and then."""

    def __init__(self, client: Client, handle: Handle[Any], chance: random.Random) -> None:
        self._connection = client._connection
        self._handle = handle
        self._chance = chance

    def is_chosen(self) -> bool:
        """Tell whether this one is sent as a message."""
        return self._chance.random() < MESSAGES_PART

    async def send(self, command: Command) -> None:
        """Return when the broker has it. Where there is no run it would be a dead letter."""
        await there(self._handle)
        await insist(lambda: self._connection.command(command))


async def there(handle: Handle[Any]) -> None:
    """Return when the run is there: a message for its start may be on its way."""
    while True:
        try:
            await insist(handle.status)
            return
        except NotFound:
            await asyncio.sleep(0.2)


async def _outcome(handle: Handle[Any], chance: random.Random) -> Outcome:
    while True:
        try:
            return "ok", await handle.result(timeout=chance.choice((None, 1.0, 20.0)))
        except TimeoutError:
            continue
        except RunFailed as problem:
            return "failed", problem.error.type
        except RunCancelled:
            return CANCELLED


async def _cancel(handle: Handle[Any], errand: Errand, after_s: float, bus: _Bus | None) -> None:
    await asyncio.sleep(after_s)
    if errand.is_cancel_taken and not errand.is_repeated:
        return
    if bus is not None and bus.is_chosen():
        await bus.send(CancelCommand(run_id=handle.run_id, reason="the simulation says so"))
        errand.is_cancel_taken = True
    else:
        await there(handle)
        await insist(lambda: handle.cancel("the simulation says so"))


async def _be_curious(handle: Handle[Any], chance: random.Random) -> None:
    await asyncio.sleep(chance.random())
    await there(handle)
    await insist(handle.status)
    await insist(handle.state)
    await insist(handle.describe)
    await insist(handle.events)


async def _tell(handle: Handle[Any], errand: Errand, chance: random.Random, bus: _Bus | None) -> None:
    """Send what the run waits for."""
    match errand.kind:
        case "mailbox":
            for place, item in enumerate(errand.items):
                await _signal(handle, errand, "item", item, place, bus)
                if chance.random() < 0.2:
                    await asyncio.sleep(2 * chance.random())
        case "impatient":
            await asyncio.sleep(4 * chance.random())
            await _signal(handle, errand, "maybe", errand.number, 0, bus)
        case "approved":
            (n,) = errand.args
            async with asyncio.TaskGroup() as group:
                group.create_task(_settle(lambda: handle.resolve("yes", n + 1)))
                group.create_task(_settle(lambda: handle.reject("no", "no")))
                group.create_task(_signal(handle, errand, "word", n + 2, 0, bus))
        case _:
            pass


async def _signal(
    handle: Handle[Any], errand: Errand, name: str, payload: object, place: int, bus: _Bus | None
) -> None:
    request_id = f"{errand.key}-{place}"
    if payload in errand.sent and not errand.is_repeated:
        return
    if bus is not None and bus.is_chosen():
        await bus.send(SignalCommand(run_id=handle.run_id, name=name, payload=payload, request_id=request_id))
        errand.sent.add(payload)
        return
    await there(handle)
    try:
        await insist(lambda: handle.signal(name, payload, request_id=request_id))
        errand.acknowledged.add(payload)
    except SignalRejected:
        errand.refused.add(payload)


async def _settle(settle: Callable[[], Awaitable[None]]) -> None:
    """Resolve or reject as soon as the promise is there."""
    while True:
        try:
            await insist(settle)
            return
        except NotFound:
            await asyncio.sleep(0.5)
        except (AlreadyResolved, SignalRejected):
            return
