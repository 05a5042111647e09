"""Commands that anybody may write: each is read as what it has says it is, or is refused with the reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidewheel.broker.commands import (
    CancelCommand,
    Command,
    SignalCommand,
    StartCommand,
    publication_of_command,
    read_command,
)
from tidewheel.broker.errors import PoisonMessage
from tidewheel.broker.memory import MemoryBroker
from tidewheel.broker.topology import (
    COMMAND_DELIVERY_LIMIT,
    COMMAND_KEYS,
    COMMANDS,
    DELIVERY_LIMIT,
    Binding,
    Exchange,
    Queue,
    commands_topology,
)

COMMAND_LIST: tuple[Command, ...] = (
    StartCommand(workflow="w"),
    StartCommand(
        workflow="w",
        input=[1, "Ä", {"deep": [None, True, 1.5]}],
        run_id="r",
        request_id="q",
        idempotency_key="k",
        queue="gpu",
        version="v2",
        namespace="shop",
        reply_to="tidewheel.reply.c",
    ),
    SignalCommand(run_id="r", name="go"),
    SignalCommand(run_id="r:1", name="go", payload={"by": ["me"]}, request_id="q", namespace="shop"),
    CancelCommand(run_id="r"),
    CancelCommand(run_id="r", reason="enough", request_id="q", namespace="shop"),
)


def body_of(**fields: Any) -> bytes:
    """Return JSON as another language might write it."""
    return json.dumps(fields, indent=1).encode()


# Reading


@pytest.mark.parametrize("command", COMMAND_LIST)
def test_a_command_is_read_as_it_was_written(command: Command) -> None:
    """Writing and reading are inverse."""
    assert read_command(publication_of_command(command, "m").message.body) == command


@pytest.mark.parametrize(
    ("fields", "command"),
    [
        ({"workflow": "w"}, StartCommand(workflow="w")),
        ({"workflow": "w", "input": [], "run_id": None}, StartCommand(workflow="w")),
        (
            {"input": [1], "namespace": "n", "workflow": "w"},
            StartCommand(workflow="w", input=[1], namespace="n"),
        ),
        ({"run_id": "r", "name": "go"}, SignalCommand(run_id="r", name="go")),
        ({"name": "go", "payload": [1], "run_id": "r"}, SignalCommand(run_id="r", name="go", payload=[1])),
        ({"run_id": "r"}, CancelCommand(run_id="r")),
        ({"reason": "enough", "run_id": "r"}, CancelCommand(run_id="r", reason="enough")),
    ],
)
def test_what_a_command_has_says_which_it_is(fields: dict[str, Any], command: Command) -> None:
    """A start names a workflow, a signal has a name, a cancel has neither; their order says nothing."""
    assert read_command(body_of(**fields)) == command


def test_what_is_left_out_has_its_default() -> None:
    """The namespace is the usual one, the input is empty, and ids are for the worker to find."""
    start = read_command(b'{"workflow": "w"}')

    assert isinstance(start, StartCommand)
    assert (start.namespace, start.input) == ("default", [])
    assert (start.run_id, start.request_id, start.idempotency_key) == (None,) * 3
    assert (start.queue, start.version, start.reply_to) == (None,) * 3


def test_what_is_the_default_is_not_written() -> None:
    """A message is as short as it can be."""
    written = publication_of_command(StartCommand(workflow="w", run_id="r"), "m").message.body

    assert json.loads(written) == {"workflow": "w", "run_id": "r"}


# Refusing


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "not a command, which is a JSON object: .*truncated"),
        (b"hello", "not a command, which is a JSON object: .*malformed"),
        (b"\xff\xfe", "not a command, which is a JSON object: .*malformed"),
        (b'{"workflow": "w"} {}', "not a command, which is a JSON object: .*trailing"),
        (b'{"workflow": "w", "input": [NaN]}', "not a command, which is a JSON object: .*malformed"),
        (b'{"\xff": 1}', "not a command, which is a JSON object: .*utf-8"),
        (b'{"workflow": "\xff"}', "not a start command: .*utf-8"),
        (b"[]", "not a command, which is a JSON object: .*array"),
        (b"null", "not a command, which is a JSON object: .*null"),
        (b'"start"', "not a command, which is a JSON object: .*str"),
    ],
)
def test_what_is_no_object_is_poison(body: bytes, problem: str) -> None:
    """It is said that it has to be JSON, and where it stops being that."""
    with pytest.raises(PoisonMessage, match=problem):
        read_command(body)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"workflow": "w", "inputs": []}, "not a start command: .*unknown field `inputs`"),
        ({"workflow": "w", "name": "go"}, "not a start command: .*unknown field `name`"),
        ({"run_id": "r", "name": "go", "input": []}, "not a signal command: .*unknown field `input`"),
        ({"run_id": "r", "name": "go", "reason": "x"}, "not a signal command: .*unknown field `reason`"),
        ({"run_id": "r", "payload": 1}, "not a cancel command: .*unknown field `payload`"),
        ({"run_id": "r", "nmae": "go"}, "not a cancel command: .*unknown field `nmae`"),
        ({"run_id": "r", "workfow": "w"}, "not a cancel command: .*unknown field `workfow`"),
    ],
)
def test_a_field_that_the_command_does_not_have_is_refused(fields: dict[str, Any], problem: str) -> None:
    """It may be one that was misspelt: nothing is done that was not asked for, a cancel least of all."""
    with pytest.raises(PoisonMessage, match=problem):
        read_command(body_of(**fields))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, "not a cancel command: .*missing required field `run_id`"),
        ({"name": "go"}, "not a signal command: .*missing required field `run_id`"),
        ({"workflow": 1}, r"not a start command: Expected `str`, got `int` - at `\$.workflow`"),
        ({"workflow": None, "run_id": "r"}, r"not a start command: .*`null` - at `\$.workflow`"),
        ({"workflow": "w", "input": {}}, r"not a start command: Expected `array`.*`\$.input`"),
        ({"workflow": "w", "input": None}, r"not a start command: Expected `array`.*`\$.input`"),
        ({"workflow": "w", "run_id": 7}, r"not a start command: .*`int` - at `\$.run_id`"),
        ({"workflow": "w", "namespace": None}, r"not a start command: .*`null` - at `\$.namespace`"),
        ({"workflow": "w", "reply_to": []}, r"not a start command: .*`array` - at `\$.reply_to`"),
        ({"run_id": 5, "name": "go"}, r"not a signal command: .*`int` - at `\$.run_id`"),
        ({"run_id": "r", "name": ["go"]}, r"not a signal command: .*`array` - at `\$.name`"),
        ({"run_id": "r", "name": None}, r"not a signal command: .*`null` - at `\$.name`"),
        ({"run_id": "r", "reason": 5}, r"not a cancel command: .*`int` - at `\$.reason`"),
        ({"run_id": None}, r"not a cancel command: .*`null` - at `\$.run_id`"),
    ],
)
def test_what_is_missing_or_of_another_type_is_told_by_its_field(
    fields: dict[str, Any], problem: str
) -> None:
    """Whoever looks at the dead letter finds what to change."""
    with pytest.raises(PoisonMessage, match=problem):
        read_command(body_of(**fields))


@pytest.mark.parametrize("number", ["1e999", "9" * 5_000])
def test_a_number_that_no_journal_could_hold_is_refused(number: str) -> None:
    """It is told by its place."""
    with pytest.raises(PoisonMessage, match=r"not a start command: .*out of range - at `\$.input\[0\]`"):
        read_command(b'{"workflow": "w", "input": [%s]}' % number.encode())


@pytest.mark.parametrize("opens", [b"[", b'{"a":'])
@pytest.mark.parametrize(
    "before", [b'{"x":', b'{"workflow":"w","input":', b'{"run_id":"r","name":"n","payload":']
)
def test_deep_nesting_is_poison_like_any_other(before: bytes, opens: bytes) -> None:
    """Whatever its depth does to whoever reads it, reading ends, and says so."""
    with pytest.raises(PoisonMessage, match="recursion"):
        read_command(before + opens * 100_000)


def test_a_hostile_field_does_not_make_a_hostile_reason() -> None:
    """However deep what nobody asked for is, the field is named."""
    with pytest.raises(PoisonMessage, match="unknown field `x`"):
        read_command(b'{"run_id":"r","x":' + b"[" * 500 + b"]" * 500 + b"}")


# What the key says


@pytest.mark.parametrize("command", COMMAND_LIST)
def test_a_command_is_read_under_its_key(command: Command) -> None:
    """Whoever writes one says twice what it is, and both agree."""
    publication = publication_of_command(command, "m")

    assert read_command(publication.message.body, publication.routing_key) == command


@pytest.mark.parametrize(
    ("key", "fields", "problem"),
    [
        ("start", {"run_id": "r"}, "missing required field `workflow`"),
        ("start", {"run_id": "r", "request_id": "q"}, "missing required field `workflow`"),
        ("start", {"run_id": "r", "name": "go"}, "unknown field `name`"),
        ("signal", {"run_id": "r"}, "missing required field `name`"),
        ("signal", {"workflow": "w"}, "unknown field `workflow`"),
        ("cancel", {"workflow": "w", "run_id": "r"}, "unknown field `workflow`"),
        ("cancel", {"run_id": "r", "name": "go"}, "unknown field `name`"),
    ],
)
def test_what_does_not_fit_its_key_is_refused(key: str, fields: dict[str, Any], problem: str) -> None:
    """A start whose workflow was forgotten is no cancel, and no command is taken for another."""
    with pytest.raises(PoisonMessage, match=f"not a {key} command, though its key says so: .*{problem}"):
        read_command(body_of(**fields), key)


@pytest.mark.parametrize("key", COMMAND_KEYS)
@pytest.mark.parametrize("body", [b"", b"hello", b"[]", b'{"workflow": ' + b"[" * 100_000])
def test_what_is_no_object_is_told_so_under_any_key(key: str, body: bytes) -> None:
    """It is not the key's fault."""
    with pytest.raises(PoisonMessage, match="not a command, which is a JSON object"):
        read_command(body, key)


@pytest.mark.parametrize("key", ["", COMMANDS, "Start", "execute"])
@pytest.mark.parametrize("command", COMMAND_LIST)
def test_a_key_that_no_command_has_says_nothing(command: Command, key: str) -> None:
    """As of a message that was sent to the queue itself: then it is what it has."""
    assert read_command(publication_of_command(command, "m").message.body, key) == command


# Where they go


@pytest.mark.parametrize(
    ("command", "key"),
    [
        (StartCommand(workflow="w"), "start"),
        (SignalCommand(run_id="r", name="go"), "signal"),
        (CancelCommand(run_id="r"), "cancel"),
    ],
)
def test_a_command_goes_to_the_exchange_for_commands(command: Command, key: str) -> None:
    """Under its own key, with the id that it was given; and a broker that restarts has to keep it."""
    publication = publication_of_command(command, "m-7")

    assert (publication.exchange, publication.routing_key) == ("tidewheel.commands", key)
    assert publication.message.message_id == "m-7"
    assert publication.message.expires_s is None
    assert publication.lasting


def test_one_queue_keeps_the_commands_of_all_namespaces() -> None:
    """What comes back too often, or cannot be followed, is kept apart for people, and does not expire."""
    assert commands_topology().exchanges == (Exchange("tidewheel.commands", "direct"),)
    assert commands_topology().queues == (
        Queue(
            name="tidewheel.commands",
            delivery_limit=COMMAND_DELIVERY_LIMIT,
            dead_letter_queue="tidewheel.commands.dlq",
        ),
        Queue(name="tidewheel.commands.dlq"),
    )
    assert set(commands_topology().bindings) == {
        Binding("tidewheel.commands", "tidewheel.commands", key) for key in ("start", "signal", "cancel")
    }


def test_a_command_may_be_delivered_more_often_than_a_hint() -> None:
    """It is the only word of what it asks for: workers that die of something else do not take it along."""
    assert COMMAND_DELIVERY_LIMIT > DELIVERY_LIMIT


@pytest.mark.parametrize("command", COMMAND_LIST)
async def test_what_is_published_is_in_the_queue_that_was_declared(command: Command) -> None:
    """The exchange, its keys and the queue fit."""
    broker = MemoryBroker(now=lambda: 0.0)
    await broker.declare(commands_topology())

    publication = publication_of_command(command, "m")
    await broker.publish([publication])

    assert publication.routing_key in COMMAND_KEYS
    async with broker.consume(COMMANDS, prefetch=1) as deliveries:
        delivery = await anext(deliveries)
        assert read_command(delivery.message.body) == command
