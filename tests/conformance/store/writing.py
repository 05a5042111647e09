"""A process that writes to a store: ``python writing.py URL WHAT ...``. It answers on standard output."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable

from tidewheel.journal.events import ExecutionCompleted, Result
from tidewheel.store.append import Append, Fate, Moves, Signalled, Start
from tidewheel.store.opening import open_store
from tidewheel.store.protocol import Store
from tidewheel.store.records import RunRef
from tidewheel.store.run_queue import dequeue_and_start

RUN = RunRef("default", "r")


def say(*words: object) -> None:
    """Answer the test, at once."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def signals(store: Store, count: str) -> None:
    """Send signals with the keys 0, 1, ..., each twice at once; say how many were written."""
    written = 0
    for number in range(int(count)):
        append = Append(run=RUN, facts=(Signalled(name="go", key=str(number)),))
        for (answer,) in await asyncio.gather(store.append([append]), store.append([append])):
            written += answer.verdicts[0].value == "written"
    say(written)


async def starts(store: Store, count: str) -> None:
    """Start runs with one idempotency key; say how many were new, and the name of the run."""
    start = Start(workflow="w", queue="q", input=[], idempotency_key="once")
    new, names = 0, set()
    for number in range(int(count)):
        name = f"{id(store)}-{number}"
        (answer,) = await store.append([Append(run=RunRef("default", name), start=start)])
        new += not answer.existed
        names.add(answer.run.run_id)
    say(new, *names)


async def claims(store: Store, count: str) -> None:
    """Claim what is due, a little at a time; say which runs were got."""
    names = []
    for _ in range(int(count)):
        names += [hint.run.run_id for hint in (await store.claim_due(limit=3)).hints]
    say(*names)


async def admits(store: Store) -> None:
    """Let queued runs begin and end each, until none is left; say the most that ran, and which began here."""
    begun, most = [], 0
    while True:
        for one in await dequeue_and_start(store, batch_max=5):
            if one.status == "STARTED":
                begun.append(one.run)
                (load,) = await store.admission.loads("default")
                most = max(most, load.running)
                await _end(store, one.run)
        (load,) = await store.admission.loads("default")
        if not load.pending:
            break
    say(most, *(run.run_id for run in begun))


async def _end(store: Store, run: RunRef) -> None:
    moves = Moves(expected=b"", token=b"t", base_seq=1, events=[ExecutionCompleted(result=Result(ok=None))])
    (answer,) = await store.append([Append(run=run, moves=moves)])
    assert answer.fate is Fate.COMMITTED


async def rushes(store: Store, count: str) -> None:
    """Start runs one after the other; say how many were let in, queued and refused."""
    start = Start(workflow="w", queue="main", input=[])
    found = {"running": 0, "queued": 0, "refused": 0}
    for number in range(int(count)):
        run = RunRef("default", f"{os.getpid()}-{number}")
        (answer,) = await store.append([Append(run=run, start=start)])
        record = await store.find(run)
        found["refused" if record is None else record.place or "none"] += 1
        assert (answer.refused is None) == (record is not None)
    say(*found.values())


async def endless(store: Store) -> None:
    """Append three signals at a time until killed; say the number of each append that was answered."""
    for number in range(1_000_000):
        facts = tuple(Signalled(name="go", payload=number, key=f"{number}-{part}") for part in range(3))
        await store.append([Append(run=RUN, facts=facts)])
        say(number)


WORK: dict[str, Callable[..., Awaitable[None]]] = {
    "signals": signals,
    "starts": starts,
    "claims": claims,
    "admits": admits,
    "rushes": rushes,
    "endless": endless,
}


async def main(url: str, what: str, *arguments: str) -> None:
    """Open the store and do what is asked for, once the test says so."""
    say("ready")
    sys.stdin.readline()
    store = await open_store(url)
    await WORK[what](store, *arguments)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
