"""The work of one append follows from what it changes, not from what came before it in its transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tidewheel.journal import events as ev
from tidewheel.store.append import Append, ChildStart, Fate, Moves, Signalled, Start
from tidewheel.store.memory import MemoryStore
from tidewheel.store.records import RunRef, StepRecord

RUN = RunRef("default", "run")


class _Scanned(list[ev.Event]):
    """A list that counts how many of its items were looked at."""

    looks = 0

    def __iter__(self) -> Iterator[ev.Event]:
        for event in super().__iter__():
            self.looks += 1
            yield event


async def test_later_appends_of_a_transaction_do_not_write_the_steps_of_earlier_ones_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thousand scheduled steps are written once, however many signals share their commit."""
    store = MemoryStore()
    await store.append([_start()])
    written: Counter[str] = Counter()
    put_step = store.rows.put_step

    def counted(key: bytes, step: StepRecord) -> None:
        written[step.path] += 1
        put_step(key, step)

    monkeypatch.setattr(store.rows, "put_step", counted)
    steps = [
        ev.InvokeScheduled(promise_id=str(n), function_name="f", input=[], dispatch="queued")
        for n in range(1_000)
    ]
    signals = [Append(run=RUN, facts=(Signalled(name="go", key=str(n)),)) for n in range(20)]

    answers = await store.append([_moves(steps), *signals])

    assert answers[0].fate is Fate.COMMITTED
    assert len(written) == 1_000
    assert set(written.values()) == {1}


async def test_starting_children_looks_at_each_scheduled_event_a_fixed_number_of_times() -> None:
    """Twice the children are twice the work, not four times."""
    few, many = await _looks_for(100), await _looks_for(200)

    assert many <= 2 * few


async def _looks_for(children: int) -> int:
    store = MemoryStore()
    await store.append([_start()])
    events = _Scanned(
        ev.InvokeScheduled(promise_id=str(n), kind="workflow", function_name="child", input=[n])
        for n in range(children)
    )
    started = {str(n): ChildStart(workflow="child", version="", digest="") for n in range(children)}

    (answer,) = await store.append([_moves(events, children=started)])

    assert answer.fate is Fate.COMMITTED
    assert await _inputs(store, children) == [[n] for n in range(children)]
    return events.looks


async def _inputs(store: MemoryStore, children: int) -> list[Any]:
    """Return what each child was given."""
    given: list[Any] = []
    for number in range(children):
        journal = await store.journal(RunRef("default", f"run:{number}"))
        assert journal is not None
        first = journal[0].event
        assert isinstance(first, ev.ExecutionStarted)
        given.append(first.input)
    return given


def _start() -> Append:
    return Append(run=RUN, start=Start(workflow="w", queue="default", input=[]))


def _moves(events: list[Any], **more: Any) -> Append:
    return Append(run=RUN, moves=Moves(expected=b"", token=b"token", base_seq=0, events=events, **more))
