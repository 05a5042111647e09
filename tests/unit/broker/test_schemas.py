"""The schemas of bodies: they say what the structs say, and messages as they are made keep to them."""

from __future__ import annotations

import datetime as dt
import json
import re
from typing import Any, get_args

import msgspec
import pytest
from jsonschema import Draft7Validator, Draft202012Validator

from tests.unit.broker.contract import breaches
from tidewheel.broker.alerts import KNOWN_ALERTS, Alert, Severity, alert_of, publication_of_alert
from tidewheel.broker.bus import EventBody, publication_of_event
from tidewheel.broker.commands import (
    CancelCommand,
    Command,
    SignalCommand,
    StartCommand,
    publication_of_command,
)
from tidewheel.broker.schemas import BODIES, schema_of
from tidewheel.broker.topology import reply_queue
from tidewheel.journal import events as ev
from tidewheel.journal import ids
from tidewheel.journal.errors import InvalidRequest
from tidewheel.journal.public import PUBLIC_TYPES, PublicEvent, published
from tidewheel.journal.run_request import RunRequest
from tidewheel.sdk.door import KEY_MAX, check_any_run_id, check_key

STRUCTS: dict[str, type[msgspec.Struct]] = {
    "event": EventBody,
    "alert": Alert,
    "start": StartCommand,
    "signal": SignalCommand,
    "cancel": CancelCommand,
}
AT = dt.datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=dt.UTC)


# Schemas and structs


def types_of(shape: dict[str, Any]) -> set[str]:
    """Return the JSON types that *shape* allows; none if it allows any."""
    if "anyOf" in shape:
        return {name for each in shape["anyOf"] for name in types_of(each)}
    if "enum" in shape:
        return {"string"} if all(isinstance(each, str) for each in shape["enum"]) else set()
    if "$ref" in shape:
        return {"object"}  # a struct within the struct
    given = shape.get("type", [])
    return {given} if isinstance(given, str) else set(given)


def of_struct(body: str) -> dict[str, Any]:
    """Return what msgspec says of the struct that *body* is written from or read into."""
    struct = STRUCTS[body]
    (shape,) = (msgspec.json.schema(struct)["$defs"][struct.__name__],)
    assert isinstance(shape, dict)
    return shape


def test_every_body_has_its_schema() -> None:
    """None is missing, and each says which it is."""
    assert set(BODIES) == STRUCTS.keys()
    assert [schema_of(body)["$id"] for body in BODIES] == [f"urn:tidewheel:schema:{body}" for body in BODIES]


@pytest.mark.parametrize("body", BODIES)
def test_a_schema_is_one(body: str) -> None:
    """It is valid by the draft that it names, and by draft 07, which AsyncAPI speaks."""
    schema = schema_of(body)

    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    Draft202012Validator.check_schema(schema)
    Draft7Validator.check_schema(schema)


@pytest.mark.parametrize("body", BODIES)
def test_a_schema_names_the_fields_of_its_struct_in_their_order(body: str) -> None:
    """A field that is added, renamed or removed is so in both."""
    assert list(schema_of(body)["properties"]) == list(STRUCTS[body].__struct_encode_fields__)


@pytest.mark.parametrize("body", BODIES)
def test_what_is_required_is_what_is_always_there(body: str) -> None:
    """What we write has every field, unless defaults are left out; what others write needs what has none."""
    struct, schema = STRUCTS[body], schema_of(body)
    needed = [field.encode_name for field in msgspec.structs.fields(struct) if field.required]

    always = needed if struct.__struct_config__.omit_defaults else list(struct.__struct_encode_fields__)
    assert schema["required"] == always
    assert set(needed) <= set(schema["required"])


@pytest.mark.parametrize("body", BODIES)
def test_what_else_may_be_there_is_what_a_reader_bears(body: str) -> None:
    """A command with a field that it does not have is refused; what we write may have more some day."""
    forbids = STRUCTS[body].__struct_config__.forbid_unknown_fields

    assert schema_of(body)["additionalProperties"] is not forbids


@pytest.mark.parametrize("body", BODIES)
def test_fields_have_the_types_and_defaults_of_the_struct(body: str) -> None:
    """Null is allowed where the struct allows it, and nowhere else."""
    ours, theirs = schema_of(body)["properties"], of_struct(body)["properties"]

    assert {name: types_of(shape) for name, shape in ours.items()} == {
        name: types_of(shape) for name, shape in theirs.items()
    }
    defaults = {name: shape["default"] for name, shape in ours.items() if "default" in shape}
    assert defaults == {
        name: shape["default"]
        for name, shape in theirs.items()
        if "default" in shape and name not in schema_of(body)["required"]
    }


def test_every_type_of_the_contract_has_the_data_that_its_table_promises() -> None:
    """One rule for each type, with the very keys, and an error in the one shape of errors."""
    schema = schema_of("event")
    promised = {}
    for rule in schema["allOf"][1:]:
        shape = schema["$defs"][rule["then"]["properties"]["data"]["$ref"].removeprefix("#/$defs/")]
        assert list(shape["properties"]) == shape["required"]
        for name in rule["if"]["properties"]["eventType"]["enum"]:
            assert name not in promised
            promised[name] = tuple(shape["required"])

    assert promised == PUBLIC_TYPES
    steps = schema["allOf"][0]["if"]["properties"]["eventType"]["enum"]
    assert set(steps) == {name for name in PUBLIC_TYPES if name.startswith("Step")}
    assert list(schema["$defs"]["error"]["properties"]) == list(ev.Error.__struct_fields__)


def test_alerts_are_those_of_the_table() -> None:
    """The names that the schema shows, and the severities that it allows."""
    properties = schema_of("alert")["properties"]

    assert properties["alert"]["examples"] == list(KNOWN_ALERTS)
    assert properties["severity"]["enum"] == list(get_args(Severity))
    assert all(re.fullmatch(properties["alert"]["pattern"], name) for name in KNOWN_ALERTS)


# Names and ids

TEXTS = ("", "a", "a.b", "a b", "a:1", "a:01", "a:1.0", "a:", ":1", "a/b@c+d=e~f-g_h", "ä", "A-z_0", "a|b")
LONG = ("x" * 100, "x" * 101, "x" * 200, "x" * 201, "x" * 200 + ":1")


def is_name(text: str) -> bool:
    """Tell whether *text* may name a workflow, a queue, a signal or a namespace."""
    return ids._NAME.fullmatch(text) is not None


def is_run_id(text: str) -> bool:
    """Tell whether a run may be started under *text*."""
    return ids._RUN_ID.fullmatch(text) is not None


def is_any_run_id(text: str) -> bool:
    """Tell whether *text* names a run or a child run."""
    try:
        check_any_run_id(text)
    except InvalidRequest:
        return False
    return True


def is_label(text: str) -> bool:
    """Tell whether *text* may be the version of an event."""
    return not text or ids._VERSION.fullmatch(text) is not None


@pytest.mark.parametrize("text", TEXTS + LONG, ids=range(len(TEXTS + LONG)))
@pytest.mark.parametrize(
    ("body", "field", "allows"),
    [
        ("start", "workflow", is_name),
        ("start", "queue", is_name),
        ("start", "namespace", is_name),
        ("start", "run_id", is_run_id),
        ("signal", "name", is_name),
        ("signal", "run_id", is_any_run_id),
        ("signal", "namespace", is_name),
        ("cancel", "run_id", is_any_run_id),
        ("cancel", "namespace", is_name),
        ("event", "runId", is_any_run_id),
        ("event", "workflow", is_name),
        ("event", "planVersion", is_label),
        ("alert", "namespace", is_name),
        ("alert", "runId", is_any_run_id),
    ],
)
def test_a_name_is_allowed_where_the_code_allows_it(body: str, field: str, allows: Any, text: str) -> None:
    """The patterns are those that ids and names are checked against at the door."""
    shape = schema_of(body)["properties"][field]

    assert Draft202012Validator(shape).is_valid(text) is allows(text)


@pytest.mark.parametrize(
    "text", ["", "a", "ä ö", "\t", "a\nb", "\x7f", "\x85", "x" * KEY_MAX, "x" * (KEY_MAX + 1)]
)
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ("start", "request_id"),
        ("start", "idempotency_key"),
        ("signal", "request_id"),
        ("cancel", "request_id"),
    ],
)
def test_a_key_is_allowed_where_the_code_allows_it(body: str, field: str, text: str) -> None:
    """Up to so many printable characters."""
    try:
        check_key(text, field)
    except InvalidRequest:
        is_allowed = False
    else:
        is_allowed = True

    assert Draft202012Validator(schema_of(body)["properties"][field]).is_valid(text) is is_allowed


def test_only_clients_queues_are_replied_to() -> None:
    """Nobody has workers write into other queues."""
    shape = Draft202012Validator(schema_of("start")["properties"]["reply_to"])

    assert shape.is_valid(reply_queue("c-1"))
    assert not shape.is_valid("tidewheel.work.default")
    assert not shape.is_valid(reply_queue("c" * 255))


# Messages as they are made

STEP = ev.InvokeScheduled(promise_id="0", function_name="charge", key="pay")
BEGUN = ev.InvokeStarted(promise_id="0", attempt=1)
ERROR = ev.Error(type="CardDeclined", message="no funds", attempts=3, details={"code": 51})
STARTED = ev.ExecutionStarted(workflow="fulfil", version="v7", input=[42])
JOURNALS: list[tuple[ev.Event, ...]] = [
    (
        STARTED,
        STEP,
        BEGUN,
        ev.InvokeCompleted(promise_id="0", attempt=2, result=ev.Result(ok={"receipt": 1})),
        ev.ExecutionCompleted(result=ev.Result(ok=None)),
    ),
    (
        STARTED,
        STEP,
        BEGUN,
        ev.InvokeCompleted(promise_id="0", attempt=3, result=ev.Result(error=ERROR)),
        ev.ExecutionFailed(error=ev.Error(type="StepFailed")),
    ),
    (
        ev.ExecutionStarted(workflow="fulfil", admission="approval"),
        ev.RunApproved(),
        ev.RunAdmitted(),
        ev.SignalAccepted(signal_id="3", signal_name="PAUSE", principal="mia"),
        ev.RunPaused(signal_id="3"),
        ev.SignalRejected(signal_id="4", signal_name="SKIP_STEP", reason="not yours"),
        ev.RunResumed(),
        STEP,
        ev.StepSkipped(promise_id="0", result=ev.Result(ok=1), reason="by hand", signal_id="5"),
        ev.StepSkipped(promise_id="0", result=ev.Result(ok=1)),
        ev.ExecutionCancelled(reason="enough"),
    ),
    (
        STARTED,
        STEP,
        BEGUN,
        ev.InvokeRetrying(promise_id="0", failed_attempt=1, error=ERROR),
        ev.StepRetryRequested(promise_id="0", signal_id="6"),
        BEGUN,
    ),
    (
        ev.ExecutionStarted(workflow="order"),
        ev.Recorded(name="OrderPaid"),
        ev.Recorded(name="OrderPaid", data=[1]),
        ev.Recorded(name="OrderPaid", data={"cents": 7800}),
    ),
]


def told() -> list[PublicEvent]:
    """Return the public events of all journals above, as a root run and as a child run tell them."""
    entries = [[ev.Entry(seq, AT, event) for seq, event in enumerate(events)] for events in JOURNALS]
    return [
        event
        for run_id in ("order-42", "order-42:1.0")
        for each in entries
        for event in published(each, run_id)
    ]


def test_an_event_of_every_type_keeps_to_its_schema() -> None:
    """Also without the room that it has for later releases."""
    assert {event.event_type for event in told()} == PUBLIC_TYPES.keys() | {"OrderPaid"}
    for event in told():
        written = publication_of_event(event, "shop").message.body
        assert breaches("event", written, is_sealed=True) == [], event.event_type


@pytest.mark.parametrize(
    "change",
    [
        {"runId": "a b"},
        {"runSeq": -1},
        {"prevSeq": "0"},
        {"workflow": None},
        {"stepId": None},
        {"logicalAttemptId": 1},
        {"engineAttemptId": "first"},
        {"emittedAt": "yesterday"},
        {"emittedAt": "2026-03-01T12:00:00"},
        {"parentEventId": "7"},
        {"data": None},
        {"data": {}},
        {"data": {"error": "no funds"}},
        {"data": {"error": {"type": "E", "message": "m"}}},
        {"data": {"error": {"type": "E", "message": "m", "retryable": "no"}}},
        {"eventType": "StepCompleted"},
        {"eventType": "RunFailed"},
        {"eventType": "OrderPaid"},
    ],
)
def test_an_event_that_says_something_else_does_not_keep_to_it(change: dict[str, Any]) -> None:
    """The schema can tell."""
    event = next(event for event in told() if event.event_type == "StepFailed")
    fields = json.loads(publication_of_event(event, "shop").message.body)

    assert breaches("event", json.dumps(fields).encode()) == []
    assert breaches("event", json.dumps({**fields, **change}).encode()) != []


@pytest.mark.parametrize("field", schema_of("event")["required"])
def test_an_event_has_all_its_fields(field: str) -> None:
    """None of them is left out."""
    fields = json.loads(publication_of_event(told()[0], "shop").message.body)
    del fields[field]

    assert breaches("event", json.dumps(fields).encode()) != []


def test_a_consumer_bears_what_a_later_release_adds() -> None:
    """Schemas of what we write leave room; one who checks by them is not broken by an upgrade."""
    fields = json.loads(publication_of_event(told()[0], "shop").message.body)

    more = json.dumps(fields | {"invented": 1, "data": fields["data"] | {"more": 2}}).encode()
    assert breaches("event", more) == []
    assert breaches("event", more, is_sealed=True) != []


@pytest.mark.parametrize(
    "command",
    [
        StartCommand(workflow="w"),
        StartCommand(
            workflow="w",
            input=[1, "Ä", {"deep": [None, True, 1.5]}],
            run_id="r",
            request_id="q",
            idempotency_key="k",
            queue="gpu",
            namespace="shop",
            reply_to=reply_queue("c"),
        ),
        StartCommand(
            workflow="w",
            request=RunRequest(
                tenant_id="t",
                project_id="p",
                environment_id="e",
                plan_id="f",
                plan_version="1",
                run_request_id="q",
            ),
        ),
        SignalCommand(run_id="r", name="go"),
        SignalCommand(run_id="r:1", name="go", payload={"by": ["me"]}, request_id="q", namespace="shop"),
        CancelCommand(run_id="r"),
        CancelCommand(run_id="r", reason="enough", request_id="q", namespace="shop"),
    ],
)
def test_a_command_keeps_to_the_schema_of_its_key(command: Command) -> None:
    """Schemas are named as the routing keys are."""
    publication = publication_of_command(command, "m")

    assert breaches(publication.routing_key, publication.message.body) == []


@pytest.mark.parametrize("key", ["start", "signal", "cancel"])
def test_a_field_that_no_command_has_does_not_keep_to_it(key: str) -> None:
    """It may be one that was misspelt."""
    first, *_ = schema_of(key)["examples"]

    assert breaches(key, json.dumps(first).encode()) == []
    assert breaches(key, json.dumps(first | {"inputs": []}).encode()) != []


@pytest.mark.parametrize("name", KNOWN_ALERTS)
@pytest.mark.parametrize("run_id", [None, "order-42", "order-42:1"])
def test_an_alert_keeps_to_its_schema(name: str, run_id: str | None) -> None:
    """With and without a run, and without the room that it has for later releases."""
    alert = alert_of(name, namespace="shop", summary="s", raised_at=AT, run_id=run_id, details={"lag_s": 7.5})

    assert breaches("alert", publication_of_alert(alert).message.body, is_sealed=True) == []
