"""What the tests of the client run on: virtual time, twins that count and fail, a worker's last move."""

from __future__ import annotations

import asyncio
import datetime as dt
import selectors
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tidewheel import App, Context
from tidewheel.broker.errors import BrokerUnavailable
from tidewheel.broker.memory import MemoryBroker
from tidewheel.broker.message import Publication
from tidewheel.broker.protocol import Untaken
from tidewheel.broker.topology import Topology
from tidewheel.journal import events as ev
from tidewheel.journal.events import Entry
from tidewheel.sdk.hinting import publications
from tidewheel.store.append import Append, Appended, Moves
from tidewheel.store.errors import CommitUnknown, StoreUnavailable
from tidewheel.store.memory import MemoryStore
from tidewheel.store.protocol import Loaded
from tidewheel.store.records import RunRecord, RunRef

BEGAN_S = 1_700_000_000.0

app = App("clients")


@app.workflow
async def add(ctx: Context, left: int, right: int = 1) -> int:
    """A sum."""
    return left + right


@app.workflow(name="shipping", version="v2", queue="ships")
async def ship(ctx: Context, at: dt.date) -> dt.date:
    """A workflow with a name, version and queue of its own."""
    return at


async def plain(ctx: Context) -> None:
    """Nobody registered this."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose time passes only while everything waits, and then at once."""

    def __init__(self) -> None:
        self.now_s = 0.0
        super().__init__(_SkippingSelector(self))

    def time(self) -> float:
        """The virtual time."""
        return self.now_s


class _SkippingSelector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Pass the time until the next timer."""
        assert timeout is not None, "everything waits, and for nothing"
        self._loop.now_s += max(timeout, 0)
        return super().select(0)


class Store(MemoryStore):
    """The memory twin, counting; it fails on demand."""

    def __init__(self) -> None:
        super().__init__(clock=lambda: BEGAN_S + asyncio.get_running_loop().time(), seed=1, debug=True)
        self.calls: Counter[str] = Counter()
        #: Replies to lose, and whether anything can be reached.
        self.lost_replies = 0
        self.lost_requests = 0
        self.is_down = False

    def count(self, what: str) -> None:
        """Count a call, or refuse it."""
        self.calls[what] += 1
        if self.is_down:
            raise StoreUnavailable("the store is down")

    async def append(self, batch: Sequence[Append]) -> list[Appended]:
        """Write, unless something is to be lost."""
        self.count("append")
        if self.lost_requests:
            self.lost_requests -= 1
            raise CommitUnknown("the connection broke before the commit")
        answers = await super().append(batch)
        if self.lost_replies:
            self.lost_replies -= 1
            raise CommitUnknown("the connection broke after the commit")
        return answers

    async def find(self, run: RunRef) -> RunRecord | None:
        """Read a row."""
        self.count("find")
        return await super().find(run)

    async def journal(self, run: RunRef, *, after: int = -1) -> list[Entry] | None:
        """Read a journal."""
        self.count("journal")
        return await super().journal(run, after=after)

    async def load(self, run: RunRef, *, after: int | None = None) -> Loaded | None:
        """Read a segment."""
        self.count("load")
        return await super().load(run, after=after)


class Broker(MemoryBroker):
    """The memory twin, which can be away."""

    def __init__(self) -> None:
        super().__init__()
        self.is_down = False
        self.published: list[Publication] = []

    def _offer(self, publications: Sequence[Publication]) -> list[Untaken | None]:
        """Take messages, unless it is away."""
        self._refuse_if_down()
        answers = super()._offer(publications)
        self.published += [one for one, answer in zip(publications, answers, strict=True) if answer is None]
        return answers

    async def declare(self, topology: Topology) -> None:
        """Declare, unless it is away."""
        self._refuse_if_down()
        await super().declare(topology)

    async def depth(self, queue: str) -> int:
        """Count messages, unless it is away."""
        self._refuse_if_down()
        return await super().depth(queue)

    def _refuse_if_down(self) -> None:
        if self.is_down:
            raise BrokerUnavailable("the broker is down")


async def move(store: MemoryStore, run_id: str, *events: ev.Event, **more: Any) -> Appended:
    """Append what a worker's activation would, without telling anybody."""
    run = RunRef("default", run_id)
    record = store.rows.run(run)
    assert record is not None
    fence = record.token
    moves = Moves(expected=fence, token=fence + b"+", base_seq=record.last_seq, events=list(events), **more)
    (answer,) = await store.append([Append(run=run, moves=moves)])
    return answer


async def complete(store: MemoryStore, broker: Broker, run_id: str, result: Any) -> None:
    """End a run as a worker does: commit, then tell who waits."""
    answer = await move(store, run_id, ev.ExecutionCompleted(result=ev.Result(ok=result)))
    await broker.publish(publications([answer]))
