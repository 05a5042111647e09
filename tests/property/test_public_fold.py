"""What holds for the public events of any journal, sensible or not, and for any stored event."""

from __future__ import annotations

import datetime as dt
from functools import cache
from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec import inspect as shapes

from tidewheel.journal import events as ev
from tidewheel.journal.codec import decode, encode
from tidewheel.journal.public import PUBLIC_TYPES, PublicEvent, PublicFold, publish

AT = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)
#: Characters that encoders get wrong; naming them is much quicker than drawing from all of Unicode.
TEXT = st.text(st.sampled_from('aZ0 "\\/\x00\x1f\x7fé\u2028\ufeff\U0001f30a'), max_size=10)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
PLAIN: dict[type[shapes.Type], st.SearchStrategy[object]] = {
    shapes.AnyType: JSON,
    shapes.BoolType: st.booleans(),
    shapes.FloatType: NUMBERS,
    shapes.NoneType: st.none(),
    shapes.DateTimeType: st.datetimes(timezones=st.just(dt.UTC)),
}


def of_shape(shape: shapes.Type) -> st.SearchStrategy[object]:
    """Return values of a field that msgspec describes as *shape*."""
    match shape:
        case shapes.IntType(ge=least):
            return st.integers(min_value=least or 0, max_value=2**63 - 1)
        case shapes.StrType(pattern=pattern):
            return TEXT if pattern is None else st.sampled_from(["0", "7", "1.0", "10.2.3"])
        case shapes.LiteralType(values=values):
            return st.sampled_from(values)
        case shapes.UnionType(types=types):
            return st.one_of([of_shape(each) for each in types])
        case shapes.ListType(item_type=item):
            return st.lists(of_shape(item), max_size=3)
        case shapes.VarTupleType(item_type=item):
            return st.lists(of_shape(item), max_size=3).map(tuple)
        case shapes.DictType(value_type=value):
            return st.dictionaries(TEXT, of_shape(value), max_size=3)
        case shapes.StructType(cls=ev.Result):
            return st.builds(ev.Result, ok=JSON) | st.builds(ev.Result, error=of_struct(ev.Error))
        case shapes.StructType(cls=cls):
            return of_struct(cls)
        case _:
            return PLAIN[type(shape)]


@cache
def of_struct(cls: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """Return structs of *cls*, with and without the fields that may be left out."""
    must: dict[str, st.SearchStrategy[object]] = {}
    may: dict[str, st.SearchStrategy[object]] = {}
    for field in msgspec.structs.fields(cls):
        (must if field.required else may)[field.name] = of_shape(shapes.type_info(field.type))
    return st.fixed_dictionaries(must, optional=may).map(lambda fields: cls(**fields))


def of_step(path: str) -> list[ev.Event]:
    """Return what may happen to the step at *path*; the likely more than once."""
    ok, broken = ev.Result(ok=[None]), ev.Result(error=ev.Error(type="E", details={"a": 1}))
    return [
        *(ev.InvokeScheduled(promise_id=path, key=key) for key in (UNSET, "a", "1")),
        ev.InvokeScheduled(promise_id=path, key="a", logical_attempt=2),
        *[ev.InvokeStarted(promise_id=path, attempt=1)] * 3,
        *(ev.InvokeCompleted(promise_id=path, attempt=1, result=result) for result in (ok, broken)),
        *[ev.InvokeRetrying(promise_id=path, failed_attempt=1)] * 2,
        ev.InvokeRetrying(promise_id=path, failed_attempt=1, retry_at=AT),
        *(ev.StepRetryRequested(promise_id=path, logical_attempt=n, signal_id="s") for n in (UNSET, 2, 3)),
        ev.StepSkipped(promise_id=path, result=ok, reason="r", signal_id="s"),
    ]


OF_RUN: list[ev.Event] = [
    *(
        ev.ExecutionStarted(version=version, admission=how)
        for version in ("", "2")
        for how in ("now", "queued")
    ),
    ev.ExecutionCompleted(),
    ev.ExecutionFailed(),
    ev.ExecutionCancelled(),
    ev.ExecutionContinued(),
    ev.RunAdmitted(),
    ev.RunApproved(),
    *(kind(signal_id=which) for kind in (ev.RunPaused, ev.RunResumed) for which in (UNSET, "3", "4")),
    *(kind(signal_id=which) for kind in (ev.SignalAccepted, ev.SignalRejected) for which in "34"),
    *(ev.Recorded(name=name, data=[1]) for name in ("OrderPaid", "RunPaused")),
]
ANY_EVENT = st.one_of([of_struct(kind) for kind in ev.EVENT_TYPES.values()])
LIKELY = st.sampled_from([*of_step("0"), *of_step("1"), *OF_RUN])
JOURNALS = (
    st.integers(0, 60)
    .flatmap(lambda size: st.lists(LIKELY, min_size=size, max_size=size))
    .map(lambda events: [ev.Entry(seq, AT, event) for seq, event in enumerate(events)])
)


def told(fold: PublicFold, entries: list[ev.Entry]) -> tuple[PublicFold, list[PublicEvent]]:
    """Fold *entries* and return what they published."""
    events = []
    for entry in entries:
        fold, event = publish(fold, entry)
        if event is not None:
            events.append(event)
    return fold, events


@given(JOURNALS)
def test_prev_seq_chains_the_public_events(entries: list[ev.Entry]) -> None:
    """Each event names the one before it, and keeps the place of its entry."""
    _, events = told(PublicFold.start("r"), entries)

    assert [event.prev_seq for event in events[:1]] == [None] * len(events[:1])
    assert all(late.prev_seq == early.run_seq < late.run_seq for early, late in pairwise(events))


@given(JOURNALS)
def test_a_key_is_used_once(entries: list[ev.Entry]) -> None:
    """The store keeps keys unique; nothing a journal holds may run into that."""
    _, events = told(PublicFold.start("r"), entries)

    assert len({event.idempotency_key for event in events}) == len(events)
    assert [event.event_type for event in events].count("RunStarted") <= 1


@given(JOURNALS, st.integers(0, 60))
def test_a_prefix_publishes_a_prefix(entries: list[ev.Entry], cut: int) -> None:
    """What was told stays told, and a fold kept from the middle goes on as it would have."""
    middle, first = told(PublicFold.start("r"), entries[:cut])
    _, rest = told(middle, entries[cut:])
    _, whole = told(PublicFold.start("r"), entries)

    assert first + rest == whole
    assert told(middle, entries[cut:])[1] == rest


@given(JOURNALS, JOURNALS)
def test_a_branch_does_not_touch_the_other(entries: list[ev.Entry], others: list[ev.Entry]) -> None:
    """Entries folded from an old value leave the newest as it was."""
    half = len(entries) // 2
    middle, first = told(PublicFold.start("r"), entries[:half])
    tip, early = told(middle, entries[half:-1])
    told(middle, others)

    assert first + early + told(tip, entries[-1:])[1] == told(PublicFold.start("r"), entries)[1]


@given(JOURNALS)
def test_entries_folded_again_publish_nothing(entries: list[ev.Entry]) -> None:
    """A reader that starts too early does no harm."""
    fold, _ = told(PublicFold.start("r"), entries)

    assert told(fold, entries) == (fold, [])


@given(JOURNALS)
def test_parents_were_told_before_their_children(entries: list[ev.Entry]) -> None:
    """A parent's id is the id of an earlier event."""
    _, events = told(PublicFold.start("r"), entries)

    seen: set[str | None] = {None}
    for event in events:
        assert event.parent_event_id in seen
        seen.add(event.id)


@given(JOURNALS)
def test_what_is_told_is_json_with_the_data_promised(entries: list[ev.Entry]) -> None:
    """A public event is the same after a trip over the bus; ``data`` has what the table says."""
    for event in told(PublicFold.start("r"), entries)[1]:
        assert msgspec.json.decode(msgspec.json.encode(event), type=PublicEvent) == event
        if event.event_type in PUBLIC_TYPES and event.event_type != "RunCompleted":
            assert set(event.data) == set(PUBLIC_TYPES[event.event_type])


@given(st.lists(ANY_EVENT, min_size=1, max_size=5))
def test_stored_events_read_back_byte_for_byte(events: list[ev.Event]) -> None:
    """Equal as values, and equal again as bytes."""
    stored = encode(events)

    again = decode(stored)

    assert again == events
    assert encode(again) == stored
