"""``docs/asyncapi.yaml``: it is an AsyncAPI document, and says of the bus what the code does.

``asyncapi/3.0.0.json`` is AsyncAPI's own schema of such documents, as it is in their npm package
``@asyncapi/specs`` 6.11.1, unchanged (Apache-2.0; its NOTICE lies beside it). So nothing has to be fetched to
check the document, and no Node is needed.
"""

from __future__ import annotations

import copy
import datetime as dt
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator, Draft202012Validator

from tests.unit.broker.asyncapi_document import DOCUMENT, components, load, with_schemas
from tests.unit.broker.contract import FORMATS
from tidewheel.broker.alerts import KNOWN_ALERTS, alert_of, publication_of_alert, read_alert
from tidewheel.broker.bus import publication_of_event, read_event
from tidewheel.broker.commands import read_command
from tidewheel.broker.errors import PoisonMessage
from tidewheel.broker.message import ORIGIN, REASON, Message, Publication
from tidewheel.broker.rabbitmq.declarations import queue_declarations
from tidewheel.broker.schemas import schema_of
from tidewheel.broker.topology import ALERTS, COMMAND_KEYS, COMMANDS, EVENTS, bus_topology, commands_topology
from tidewheel.journal.public import PUBLIC_TYPES, PublicEvent, idempotency_key

pytestmark = pytest.mark.skipif(not DOCUMENT.exists(), reason="an unpacked sdist has no docs")

OFFICIAL = Path(__file__).with_name("asyncapi") / "3.0.0.json"
YAML_RULES = "{extends: default, rules: {line-length: {max: 120}}}"
AT = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)
EVENT = PublicEvent(
    run_id="order-42",
    run_seq=0,
    prev_seq=None,
    event_type="RunStarted",
    workflow="fulfil",
    emitted_at=AT,
    data={"input": []},
    idempotency_key=idempotency_key("order-42", "RUN", 1, "RunStarted", ""),
)
ALERT = alert_of("OUTBOX_DEAD_LETTER", namespace="shop", run_id="order-42", summary="s", raised_at=AT)


@cache
def document() -> dict[str, Any]:
    """Return the document; nobody changes it."""
    return load() if DOCUMENT.exists() else {}


@cache
def official() -> Draft7Validator:
    """Return what knows every AsyncAPI document from others."""
    return Draft7Validator(json.loads(OFFICIAL.read_bytes()))


def at(reference: str) -> Any:
    """Return what *reference* of the document leads to."""
    place: Any = document()
    for part in reference.removeprefix("#/").split("/"):
        place = place[part]
    return place


def references(value: Any) -> Iterator[str]:
    """Yield every reference in *value*."""
    if isinstance(value, list):
        for each in value:
            yield from references(each)
    elif isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for each in value.values():
            yield from references(each)


def amqp_of(channel: dict[str, Any]) -> dict[str, Any]:
    """Return what the document says of a channel on RabbitMQ."""
    said = channel["bindings"]["amqp"]
    assert isinstance(said, dict)
    return said


def channels_of(exchange: str) -> list[dict[str, Any]]:
    """Return the channels that are keys of *exchange*."""
    found = document()["channels"].values()
    return [channel for channel in found if amqp_of(channel).get("exchange", {}).get("name") == exchange]


# The document


def test_it_is_an_asyncapi_document() -> None:
    """AsyncAPI's own schema finds nothing wrong with it."""
    assert [f"{error.json_path}: {error.message}" for error in official().iter_errors(document())] == []
    assert document()["asyncapi"] == "3.0.0"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("asyncapi",), "2.6.0"),
        (("chanels",), {}),
        (("channels", "events", "adress"), "x"),
        (("channels", "events", "bindings", "amqp", "is"), "topic"),
        (("channels", "start", "bindings", "amqp", "exchange", "type"), "straight"),
        (("operations", "startRun", "action"), "subscribe"),
        (("components", "messages", "event", "examples"), [{"body": {}}]),
        (("components", "schemas", "event", "type"), "thing"),
    ],
)
def test_a_mistake_in_it_would_be_found(path: tuple[str, ...], value: Any) -> None:
    """A key that AsyncAPI does not have, or a word that it does not know."""
    damaged = copy.deepcopy(document())
    place = damaged
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value

    assert not official().is_valid(damaged)


def test_it_is_tidy_yaml() -> None:
    """No duplicate key, no indentation that means something else than it looks like."""
    command = [sys.executable, "-m", "yamllint", "--strict", "-d", YAML_RULES, str(DOCUMENT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert done.stdout + done.stderr == ""


def test_every_reference_leads_somewhere() -> None:
    """All of them stay inside the document, so that it can be passed on alone."""
    found = set(references(document()))

    assert [each for each in found if not each.startswith("#/")] == []
    for each in found:
        at(each)


def test_an_operation_is_about_messages_of_its_channel() -> None:
    """Every channel has an operation, and none has messages of another one."""
    operations = document()["operations"].values()

    for operation in operations:
        channel = operation["channel"]["$ref"]
        assert all(each["$ref"].startswith(f"{channel}/messages/") for each in operation["messages"])
    used = {operation["channel"]["$ref"] for operation in operations}
    assert used == {f"#/channels/{name}" for name in document()["channels"]}


# The schemas in it


def test_the_schemas_are_those_of_the_package() -> None:
    """If this fails: make docs."""
    text = DOCUMENT.read_text("utf-8")

    assert text == with_schemas(text)
    assert document()["components"]["schemas"] == components()


@pytest.mark.parametrize("name", ["event", "alert", "start", "signal", "cancel"])
def test_a_message_has_the_schema_of_its_name(name: str) -> None:
    """No body is described by another one's schema."""
    assert at(f"#/components/messages/{name}")["payload"] == {"$ref": f"#/components/schemas/{name}"}


def in_document(schema: dict[str, Any]) -> Draft7Validator:
    """Return what checks by *schema* as a tool does that has nothing but the document."""
    return Draft7Validator(
        {"components": document()["components"], "allOf": [schema]}, format_checker=FORMATS
    )


EXAMPLES = [
    pytest.param(name, example, id=f"{name}-{example['name']}")
    for name, message in document().get("components", {}).get("messages", {}).items()
    for example in message["examples"]
]


@pytest.mark.parametrize(("name", "example"), EXAMPLES)
def test_an_example_keeps_to_its_schema(name: str, example: dict[str, Any]) -> None:
    """By the document's own schema, by that of the package, and by what is said of headers."""
    message = at(f"#/components/messages/{name}")

    assert list(in_document(message["payload"]).iter_errors(example["payload"])) == []
    if name in ("event", "alert", "start", "signal", "cancel"):
        validator = Draft202012Validator(schema_of(name), format_checker=FORMATS)
        assert list(validator.iter_errors(example["payload"])) == []
    assert (
        list(in_document(headers_of(name)).iter_errors(example.get("headers", headers_example(name)))) == []
    )


def headers_of(name: str) -> dict[str, Any]:
    """Return what is said of the headers of a message, by itself or by its trait."""
    message = at(f"#/components/messages/{name}")
    traits = [at(trait["$ref"]) for trait in message.get("traits", [])]
    schemas = [each["headers"] for each in [message, *traits] if "headers" in each]
    return schemas[0] if schemas else {"type": "object"}


def headers_example(name: str) -> dict[str, Any]:
    """Return the headers of the first example of a message that has any."""
    examples = at(f"#/components/messages/{name}")["examples"]
    return next((example["headers"] for example in examples if "headers" in example), {})


def test_every_event_and_every_alert_has_its_example() -> None:
    """And there is one of a decider's own."""
    examples = [at(f"#/components/messages/{name}")["examples"] for name in ("event", "alert")]
    events, alerts = ([example["name"] for example in each] for each in examples)

    assert events == [*PUBLIC_TYPES, "OrderPaid"]
    assert events == [example["payload"]["eventType"] for example in examples[0]]
    assert alerts == list(KNOWN_ALERTS) == [example["payload"]["alert"] for example in examples[1]]
    assert [example["payload"]["action"] for example in examples[1]] == [
        known.action for known in KNOWN_ALERTS.values()
    ]


@pytest.mark.parametrize("name", ["event", "alert"])
def test_the_example_with_headers_is_what_the_code_publishes(name: str) -> None:
    """Read and published again, it is the same message: its id too is made of what it says."""
    examples = at(f"#/components/messages/{name}")["examples"]
    (example,) = (each for each in examples if "headers" in each)
    body = json.dumps(example["payload"]).encode()
    message = Message(body=body, message_id="m", headers=example["headers"])

    if name == "event":
        namespace, event = read_event(message)
        published = publication_of_event(event, namespace).message
    else:
        published = publication_of_alert(read_alert(message)).message

    assert published.headers == example["headers"]
    assert published.message_id == example["headers"]["ce-id"]
    assert set(json.loads(published.body)) == set(example["payload"])


# What the code does


def test_exchanges_are_those_that_are_declared() -> None:
    """Each with its type; all are durable."""
    declared = {
        (each.name, each.type) for each in (*commands_topology().exchanges, *bus_topology().exchanges)
    }
    said = [amqp_of(channel).get("exchange") for channel in document()["channels"].values()]

    assert {(each["name"], each["type"]) for each in said if each} == declared
    assert all((each["durable"], each["autoDelete"]) == (True, False) for each in said if each)


def test_queues_are_those_that_are_declared() -> None:
    """Each with the very arguments that RabbitMQ is told."""
    said = {
        channel["address"]: amqp_of(channel)
        for channel in document()["channels"].values()
        if amqp_of(channel)["is"] == "queue"
    }
    declared = {each.name: each for each in queue_declarations(commands_topology())}

    assert said.keys() == declared.keys()
    for name, each in declared.items():
        assert said[name]["x-arguments"] == each.arguments
        assert said[name]["queue"] == {
            "name": name,
            "durable": each.durable,
            "exclusive": each.exclusive,
            "autoDelete": each.auto_delete,
        }


def test_keys_of_commands_are_those_that_are_bound() -> None:
    """Each carries the message of its name."""
    channels = channels_of(COMMANDS)

    assert [channel["address"] for channel in channels] == list(COMMAND_KEYS)
    assert [list(channel["messages"]) for channel in channels] == [[key] for key in COMMAND_KEYS]
    assert list(at("#/channels/commandQueue/messages")) == list(COMMAND_KEYS)


@pytest.mark.parametrize(
    ("exchange", "publication", "words"),
    [
        (
            EVENTS,
            publication_of_event(EVENT, "shop"),
            {"namespace": "shop", "workflow": "fulfil", "eventType": "RunStarted"},
        ),
        (ALERTS, publication_of_alert(ALERT), {"namespace": "shop", "alert": "OUTBOX_DEAD_LETTER"}),
    ],
)
def test_topics_are_those_that_are_published(
    exchange: str, publication: Publication, words: dict[str, str]
) -> None:
    """The routing key is made of the words that the document names, in their order."""
    (channel,) = channels_of(exchange)

    assert publication.exchange == exchange
    assert publication.routing_key == channel["address"].format(**words)
    assert channel["parameters"].keys() == set(re.findall(r"\{(\w+)\}", channel["address"])) == words.keys()


@pytest.mark.parametrize(
    ("name", "publication"),
    [
        ("event", publication_of_event(EVENT, "shop")),
        ("alert", publication_of_alert(ALERT)),
        (
            "alert",
            publication_of_alert(alert_of("PROJECTOR_LAG_HIGH", namespace="n", summary="", raised_at=AT)),
        ),
    ],
)
def test_headers_are_those_that_are_published(name: str, publication: Publication) -> None:
    """What is required is always there, and nothing is there that the document does not name."""
    headers, said = publication.message.headers, headers_of(name)

    assert list(in_document(said).iter_errors(headers)) == []
    assert headers.keys() <= said["properties"].keys()
    assert document()["defaultContentType"] == publication.message.content_type


def test_a_dead_command_says_why_in_the_header_that_workers_write() -> None:
    """And which queue it was in."""
    (example,) = at("#/components/messages/deadCommand")["examples"]
    with pytest.raises(PoisonMessage) as problem:
        read_command(json.dumps(example["payload"]).encode())

    assert list(headers_of("deadCommand")["properties"]) == [REASON, ORIGIN]
    assert example["headers"] == {REASON: str(problem.value), ORIGIN: COMMANDS}
