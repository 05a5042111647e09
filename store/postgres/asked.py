"""What a group of appends will ask of the rows, as far as it can be foreseen. Pure.

The ledger asks for one thing at a time; over a network each of them would be a round trip. So what an append
is known to need is fetched with its locks, in one call. Foreseeing too little costs time and never
correctness: ``rows`` says what is missing, and it is fetched then.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from tidewheel.journal import events as ev
from tidewheel.store.append import (
    Admit,
    Append,
    Cancelled,
    Fact,
    Fired,
    Moves,
    Resolved,
    Signalled,
    Start,
)
from tidewheel.store.records import RunRef

_CLOSING = (*ev.TERMINAL, ev.ExecutionContinued)


class Asked:
    """Sets of what is wanted, by kind; a path, name or key is of a run."""

    def __init__(self) -> None:
        self.names: set[int] = set()
        self.runs: set[RunRef] = set()
        #: Runs by their own key, and by namespace and idempotency key.
        self.by_key: set[bytes] = set()
        self.keys: set[tuple[str, str]] = set()
        #: Queues, by namespace and name: what counts in their limits is wanted.
        self.limits: set[tuple[str, str]] = set()
        #: Runs that may end: their parents and open children are concerned.
        self.closing: set[RunRef] = set()
        self.all_steps: set[RunRef] = set()
        self.steps: set[tuple[RunRef, str]] = set()
        self.timers: set[tuple[RunRef, str]] = set()
        self.promises: set[tuple[RunRef, str]] = set()
        self.facts: set[tuple[RunRef, str]] = set()
        self.step_ids: set[tuple[RunRef, str]] = set()
        #: The first and the last event wanted of a run; without a last one, all that follow.
        self.events: dict[RunRef, tuple[int, int | None]] = {}

    def as_json(self) -> bytes:
        """Return it as the functions in the database read it: without the kinds of which nothing is asked."""
        asked: dict[str, Any] = {
            "names": sorted(self.names),
            "runs": [{"n": ref.namespace, "r": ref.run_id} for ref in self.runs],
            "by_key": ["\\x" + key.hex() for key in self.by_key],
            "keys": [{"n": namespace, "k": key} for namespace, key in self.keys],
            "limits": [{"n": namespace, "q": queue} for namespace, queue in self.limits],
            "closing": [{"n": ref.namespace, "r": ref.run_id} for ref in self.closing],
            "all_steps": [{"n": ref.namespace, "r": ref.run_id} for ref in self.all_steps],
            "steps": _places(self.steps),
            "timers": _places(self.timers),
            "promises": _places(self.promises),
            "facts": _places(self.facts),
            "step_ids": _places(self.step_ids),
            "events": [
                {"n": ref.namespace, "r": ref.run_id, "from": first, "to": last}
                for ref, (first, last) in self.events.items()
            ],
        }
        return msgspec.json.encode({kind: wanted for kind, wanted in asked.items() if wanted})


def _places(places: Iterable[tuple[RunRef, str]]) -> list[dict[str, str]]:
    return [{"n": ref.namespace, "r": ref.run_id, "p": place} for ref, place in places]


def foresee(batch: Sequence[Append]) -> Asked:
    """Return what the ledger will ask for when it is given *batch*."""
    asked = Asked()
    for request in batch:
        asked.runs.add(request.run)
        if request.start is not None:
            _foresee_start(asked, request.run, request.start)
        for fact in request.facts:
            _foresee_fact(asked, request.run, fact)
        if isinstance(request.mark, Admit):
            asked.limits.add((request.run.namespace, request.mark.queue))
        if request.moves is not None:
            _foresee_moves(asked, request.run, request.moves)
            if request.start is not None:
                asked.events[request.run] = (0, None)  # if it is there, its input is compared
    return asked


def _foresee_start(asked: Asked, ref: RunRef, start: Start) -> None:
    asked.names.add(name_number("run", *ref))
    asked.events.setdefault(ref, (0, 0))  # if it is there, its input is compared
    asked.limits.add((ref.namespace, start.queue))
    if start.idempotency_key is not None:
        asked.names.add(name_number("key", ref.namespace, start.idempotency_key))
        asked.keys.add((ref.namespace, start.idempotency_key))


def _foresee_fact(asked: Asked, ref: RunRef, fact: Fact) -> None:
    match fact:
        case Fired(path=path):
            asked.timers.add((ref, path))
        case Signalled(key=key):
            asked.facts.add((ref, key))
        case Resolved(name=name, key=key):
            asked.facts.add((ref, key))
            asked.promises.add((ref, name))
        case Cancelled():
            _foresee_end(asked, ref)  # of a run that was never activated
        case _:
            asked.steps.add((ref, fact.path))


def _foresee_moves(asked: Asked, ref: RunRef, moves: Moves) -> None:
    asked.events[ref] = (moves.base_seq + 1, None)
    for event in moves.events:
        if isinstance(event, ev.InvokeScheduled) and event.key is not UNSET:
            asked.step_ids.add((ref, event.key))
        elif isinstance(event, _CLOSING):
            asked.all_steps.add(ref)
            _foresee_end(asked, ref)
    for path in moves.abandoned:
        asked.steps.add((ref, path))
        asked.runs.add(child_of(ref, path))
    for path in moves.wanted:
        asked.steps.add((ref, path))


def widen(missing: Asked, batch: Sequence[Append]) -> None:
    """Add to the one id that is *missing* all others that its kind of question will be asked for.

    Whether steps without a key are asked for by their paths depends on the run's row; a run that schedules
    thousands of them at once must not cost as many round trips.
    """
    if not missing.step_ids:
        return
    for request in batch:
        events = () if request.moves is None else request.moves.events
        missing.step_ids |= {
            (request.run, event.promise_id) for event in events if isinstance(event, ev.InvokeScheduled)
        }


def _foresee_end(asked: Asked, ref: RunRef) -> None:
    asked.closing.add(ref)
    root, _, path = ref.run_id.partition(":")
    if path:
        above = path.rpartition(".")[0]
        asked.steps.add((RunRef(ref.namespace, f"{root}:{above}" if above else root), path))


def child_of(ref: RunRef, path: str) -> RunRef:
    """Return the child run that *ref* may have at *path*."""
    return RunRef(ref.namespace, f"{ref.run_id.partition(':')[0]}:{path}")


def name_number(*words: str) -> int:
    """Return the number under which a name is locked: two that share one only wait for each other."""
    digest = hashlib.blake2b("\0".join(("tidewheel", *words)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
