"""The JSON form is exact both ways, tolerant of what it need not know, and plain about the rest."""

from __future__ import annotations

import datetime as dt
import json
import math
from typing import Any

import pytest

from tidewheel.journal import events as ev
from tidewheel.journal.errors import InvalidRequest
from tidewheel.journal.jsonform import UNREADABLE, FormatError, canonical, dumps, loads, read, to_json
from tidewheel.journal.verify import verify_bytes

AT = dt.datetime(2025, 1, 31, 12, 0, 0, 123456, tzinfo=dt.UTC)
RESULT = ev.Result(ok=None)
#: One event of every class that has fields of its own to keep.
EVENTS: list[ev.Event] = [
    ev.ExecutionStarted(workflow="w", input=[1, "a"], now=AT, admission="queued", state={"k": [1]}),
    ev.RunAdmitted(),
    ev.InvokeScheduled(promise_id="0", n=0, function_name="f", limits=ev.InvokeLimits(timeout=1.5)),
    ev.InvokeScheduled(promise_id="1", key="k", kind="workflow", dispatch="queued"),
    ev.InvokeStarted(promise_id="0", attempt=1),
    ev.InvokeRetrying(promise_id="0", failed_attempt=1, error=ev.Error(type="E", attempts=2), retry_at=AT),
    ev.InvokeStarted(promise_id="0", attempt=2),
    ev.InvokeCompleted(promise_id="0", attempt=2, result=ev.Result(error=ev.Error(type="E", details={}))),
    ev.TimerScheduled(promise_id="2", duration=0.1, fire_at=AT),
    ev.SignalDelivered(signal_name="s", delivery_id=0, payload={"b": 1, "a": 2}),
    ev.SignalReceived(promise_id="3", signal_name="s", delivery_id=0, payload={"b": 1, "a": 2}, n=0),
    ev.ExecutionAwaiting(
        waiting_on=["1", "4"], kind="any", signals=[ev.SignalWait(promise_id="4", signal_name="t", n=1)]
    ),
    ev.StepSkipped(promise_id="1", result=RESULT, reason="r", signal_id="x"),
    ev.ExecutionResumed(applied=["0", "1"], now=AT),
    ev.Recorded(name="n", version=2, data=[None]),
    ev.ExecutionCompleted(result=ev.Result(ok={"z": []})),
]


def _journal(*events: ev.Event) -> list[ev.Entry]:
    return [ev.Entry(number, AT, event) for number, event in enumerate(events)]


def _started(payload: str) -> bytes:
    return b'[{"run_seq":0,"type":"ExecutionStarted","data":{"input":[%s]}}]' % payload.encode()


def test_every_field_comes_back_as_it_was() -> None:
    """What is written is read back equal, with its times and its unset fields."""
    journal = _journal(*EVENTS)

    assert loads(dumps(journal)) == journal
    assert loads(json.dumps(to_json(journal)).encode()) == journal


@pytest.mark.parametrize(
    "value",
    [
        -0.0,
        0.0,
        1e16,
        1.0,
        5e-324,
        2**53 + 1,
        2**70,
        -(2**70),
        True,
        None,
        {},
        "",
        "\x00",
        "\u2028",
        "\U0001f600",
    ],
)
def test_payloads_round_trip_exactly(value: object) -> None:
    """Type, sign and every character survive: what is shown is what ran."""
    started = ev.ExecutionStarted(input=[value])

    (entry,) = loads(dumps(_journal(started)))

    assert isinstance(entry.event, ev.ExecutionStarted)
    (back,) = entry.event.input
    assert (type(back), back) == (type(value), value)
    if isinstance(value, float) and isinstance(back, float):
        assert math.copysign(1.0, back) == math.copysign(1.0, value)


def test_key_order_is_kept() -> None:
    """An object's keys come back in the order in which they were written."""
    data = dumps(_journal(ev.StateSet(key="k", value={"b": 1, "a": 2})))

    assert b'{"b":1,"a":2}' in dumps(loads(data))


def test_the_form_is_a_list_with_one_event_per_line() -> None:
    """People read, diff and cut journals by line."""
    lines = dumps(_journal(ev.ExecutionStarted(), ev.StateCleared(key="k"))).decode().splitlines()

    assert lines[0] == "["
    assert lines[2:] == [
        '{"run_seq":1,"type":"StateCleared","at":"2025-01-31T12:00:00.123456Z","data":{"key":"k"}}',
        "]",
    ]
    assert dumps([]) == b"[]\n"


def test_readers_tolerate_more_fields_and_missing_ones() -> None:
    """A newer writer adds fields; no rule needs ``at``, and some events have no data."""
    admitted = b'{"run_seq": 0, "type": "RunAdmitted", "new": 1}'
    cleared = b'{"type": "StateCleared", "data": {"key": "k", "more": []}, "run_seq": 1, "at": null}'

    entries = loads(b"[%s, %s]" % (admitted, cleared))

    assert [(entry.run_seq, entry.at) for entry in entries] == [(0, None), (1, None)]
    assert entries[1].event == ev.StateCleared(key="k")


def test_of_a_key_that_comes_twice_the_last_one_counts() -> None:
    """As in every JSON reader in use."""
    (entry,) = loads(b'[{"run_seq": 7, "type": "RunPaused", "run_seq": 0, "data": {}}]')

    assert entry.run_seq == 0


@pytest.mark.parametrize(
    ("row", "run_seq", "message"),
    [
        (5, None, "entry 0: the entry must be object, got int"),
        ("x", None, "entry 0: the entry must be object, got str"),
        ([], None, "entry 0: the entry must be object, got array"),
        ({"type": "RunPaused"}, None, "entry 0: run_seq is missing"),
        ({"run_seq": -1, "type": "RunPaused"}, None, "entry 0: run_seq must be int >= 0"),
        ({"run_seq": True, "type": "RunPaused"}, None, "entry 0: run_seq must be int, got bool"),
        ({"run_seq": "0", "type": "RunPaused"}, None, "entry 0: run_seq must be int, got str"),
        (
            {"run_seq": 2**63, "type": "RunPaused"},
            None,
            "entry 0: run_seq must be int <= 9223372036854775807",
        ),
        ({"run_seq": 3}, 3, "entry 0: type is missing"),
        ({"run_seq": 3, "type": "Nope"}, 3, "entry 0: type 'Nope' is not an event this version knows"),
        (
            {"run_seq": 3, "type": "RunPaused", "at": "yesterday"},
            3,
            "entry 0: at must be an RFC 3339 time with an offset, like '2025-01-31T12:00:00Z'",
        ),
        (
            {"run_seq": 3, "type": "RunPaused", "at": "2025-01-31T12:00:00"},
            3,
            "entry 0: at must be an RFC 3339 time with an offset, like '2025-01-31T12:00:00Z'",
        ),
        (
            {"run_seq": 3, "type": "RunPaused", "data": None},
            3,
            "entry 0: RunPaused: data must be object, got null",
        ),
        (
            {"run_seq": 3, "type": "TimerFired", "data": {"promise_id": "01"}},
            3,
            "entry 0: TimerFired: promise_id must be a path like '1' or '1.0'",
        ),
        (
            {"run_seq": 3, "type": "ExecutionResumed", "data": {"applied": ["1", "canceled"]}},
            3,
            "entry 0: ExecutionResumed: applied[1] must be a path like '1' or '1.0' or the word 'cancel'",
        ),
        ({"run_seq": 3, "type": "TimerFired"}, 3, "entry 0: TimerFired: promise_id is missing"),
        (
            {"run_seq": 3, "type": "InvokeStarted", "data": {"promise_id": "0", "attempt": 0}},
            3,
            "entry 0: InvokeStarted: attempt must be int >= 1",
        ),
        (
            {"run_seq": 3, "type": "PromiseResolved", "data": {"promise_id": "0", "result": {}}},
            3,
            'entry 0: PromiseResolved: result: a result has either "ok" or "error"',
        ),
        (
            {"run_seq": 3, "type": "PromiseResolved", "data": {"promise_id": "0", "result": {"error": {}}}},
            3,
            "entry 0: PromiseResolved: result.error.type is missing",
        ),
        (
            {"run_seq": 3, "type": "ExecutionAwaiting", "data": {"waiting_on": [], "kind": "some"}},
            3,
            "entry 0: ExecutionAwaiting: kind must be one of 'all', 'any', 'signal', 'single'",
        ),
    ],
)
def test_a_bad_entry_is_named_in_plain_words(row: Any, run_seq: int | None, message: str) -> None:
    """The message says where it is, what is wrong and what was expected."""
    data = json.dumps([row]).encode()

    with pytest.raises(FormatError) as caught:
        loads(data)

    assert isinstance(caught.value, InvalidRequest)
    assert (caught.value.run_seq, str(caught.value)) == (run_seq, message)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"{}",
        b"null",
        b"7",
        b'"journal"',
        b"[1, 2",
        b"[] []",
        b"\xff\xfe",
        b"\x00",
        b"[NaN]",
        b'["\\ud800"]',
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'[{"run_seq":' + b"[" * 100_000 + b"]" * 100_000 + b"}]",
    ],
    ids=lambda data: repr(data[:20]),
)
def test_what_is_no_list_of_events_is_one_format_breach(data: bytes) -> None:
    """Unreadable input has one answer, and it names no event."""
    (breach,) = verify_bytes(data)

    assert (breach.rule, breach.run_seq) == ("FORMAT", None)
    with pytest.raises(FormatError):
        loads(data)


@pytest.mark.parametrize(
    "payload",
    ["1e400", "9" * 5000, "-" + "9" * 5000],
)
def test_numbers_that_cannot_be_kept_are_refused(payload: str) -> None:
    """A number that would be read as another one is not read at all."""
    (breach,) = verify_bytes(_started(payload))

    assert (breach.rule, breach.run_seq) == ("FORMAT", 0)


@pytest.mark.parametrize("digits", [19, 4299, 4300, 4301])
def test_numbers_that_cannot_be_printed_have_an_answer(digits: int) -> None:
    """The interpreter prints no integer of more than 4300 digits; the rules must never have to."""
    number = "9" * digits
    started = f'{{"run_seq":0,"type":"InvokeStarted","data":{{"promise_id":"0","attempt":{number}}}}}'

    breaches = verify_bytes(f'[{started},{{"run_seq":{number},"type":"RunPaused"}}]'.encode())

    assert [breach.rule for breach in breaches] == ["FORMAT", "FORMAT"]


def test_text_that_is_not_utf8_is_refused_where_it_stands() -> None:
    """One bad string does not hide the number of its entry."""
    cleared = b'{"run_seq": 1, "type": "StateCleared", "data": {"key": "\xff"}}'

    (breach,) = verify_bytes(b'[{"run_seq": 0, "type": "ExecutionStarted"}, %s]' % cleared)

    assert (breach.rule, breach.run_seq) == ("FORMAT", 1)
    assert breach.message == "entry 1: StateCleared: it holds text that is not valid UTF-8"


def test_payloads_nested_deeply_are_read_or_refused() -> None:
    """Nesting up to what the interpreter can read is fine, and more is an answer too."""
    for depth in (10, 500, 800, 900, 950, 980, 1000, 5000):
        nested = "[" * depth + "]" * depth
        data = (b'[{"run_seq":0,"type":"ExecutionStarted"},'
                b'{"run_seq":1,"type":"SignalDelivered","data":{"signal_name":"s","delivery_id":1,"payload":%s}},'
                b'{"run_seq":2,"type":"SignalReceived","data":{"promise_id":"0","signal_name":"s",'
                b'"delivery_id":1,"payload":%s}}]') % (nested.encode(), nested.encode())  # fmt: skip

        assert {breach.rule for breach in verify_bytes(data)} <= {"FORMAT"}


def test_other_entries_are_judged_although_one_is_unreadable() -> None:
    """A placeholder keeps the place of what could not be read; it breaks no rule by itself."""
    rows: list[Any] = [
        {"run_seq": 0, "type": "Unknown"},
        {"run_seq": 1, "type": "InvokeStarted", "data": {"promise_id": "0", "attempt": 1}},
        "nonsense",
        {"run_seq": 3, "type": "TimerFired", "data": {"promise_id": "1"}},
        {"run_seq": 9, "type": "Unknown"},
        {"run_seq": 10, "type": "ExecutionCompleted"},
        {"run_seq": 11, "type": "Unknown"},
    ]

    breaches = verify_bytes(json.dumps(rows).encode())

    assert [(breach.rule, breach.run_seq) for breach in breaches] == [
        ("FORMAT", None),
        ("FORMAT", 0),
        ("SE-1", 1),
        ("CF-1", 3),
        ("FORMAT", 9),
        ("S-1", 9),
        ("FORMAT", 11),
    ]


def test_reading_keeps_the_place_of_an_unreadable_entry() -> None:
    """An entry without a number takes the next one."""
    entries, problems = read(b'[{"run_seq": 4, "type": "RunPaused"}, 1, {"run_seq": 8}]')

    assert [entry.run_seq for entry in entries] == [4, 5, 8]
    assert [entry.event is UNREADABLE for entry in entries] == [False, True, True]
    assert [problem.run_seq for problem in problems] == [None, 8]


def test_equal_json_has_one_canonical_text() -> None:
    """Key order does not matter; the type of a value does."""
    assert canonical({"b": 1, "a": [2]}) == canonical({"a": [2], "b": 1})
    assert len({canonical(value) for value in (1, 1.0, True, "1", [1])}) == len((1, 1.0, True, "1", [1]))
