"""Messages made of any sensible journal, and any command, keep to the schemas of the package."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.programs import generate
from tests.property.shell import Shell
from tests.property.test_public_fold import AT, JOURNALS, JSON
from tests.unit.broker.contract import breaches
from tidewheel.broker.bus import publication_of_event
from tidewheel.broker.commands import (
    CancelCommand,
    Command,
    SignalCommand,
    StartCommand,
    publication_of_command,
)
from tidewheel.journal import events as ev
from tidewheel.journal.public import published

PROGRAMS = 60
NAMES = st.from_regex(r"[A-Za-z0-9_-]{1,100}", fullmatch=True)
RUN_IDS = st.from_regex(r"[A-Za-z0-9._/@+=~-]{1,200}", fullmatch=True)
CHILD_IDS = st.builds("{}:{}".format, RUN_IDS, st.sampled_from(["0", "7", "1.0", "10.2.3"]))
KEYS = st.text(st.sampled_from("aZ0 ~ä€\U0001f30a"), min_size=1, max_size=200)
COMMANDS: st.SearchStrategy[Command] = st.one_of(
    st.builds(
        StartCommand,
        workflow=NAMES,
        input=st.lists(JSON, max_size=3),
        run_id=st.none() | RUN_IDS,
        request_id=st.none() | KEYS,
        idempotency_key=st.none() | KEYS,
        queue=st.none() | NAMES,
        namespace=NAMES,
    ),
    st.builds(
        SignalCommand,
        run_id=RUN_IDS | CHILD_IDS,
        name=NAMES,
        payload=JSON,
        request_id=st.none() | KEYS,
        namespace=NAMES,
    ),
    st.builds(CancelCommand, run_id=RUN_IDS | CHILD_IDS, reason=st.none() | st.text(max_size=20)),
)


@pytest.fixture
def _quiet() -> Iterator[None]:
    """Branches of generated programs fail unobserved all the time, and say so."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def checked(entries: list[ev.Entry], run_id: str) -> list[str]:
    """Hold every event that a journal publishes against its schema; return their types."""
    events = published(entries, run_id)
    for event in events:
        written = publication_of_event(event, "shop").message.body
        assert breaches("event", written, is_sealed=True) == []
    return [event.event_type for event in events]


def sensible(entries: list[ev.Entry]) -> list[ev.Entry]:
    """Return a journal that begins with a start, and whose segments all name their workflow."""
    begun = [ev.Entry(0, AT, ev.ExecutionStarted())]
    begun += [msgspec.structs.replace(entry, run_seq=entry.run_seq + 1) for entry in entries]
    return [
        msgspec.structs.replace(entry, event=msgspec.structs.replace(entry.event, workflow="fulfil"))
        if isinstance(entry.event, ev.ExecutionStarted)
        else entry
        for entry in begun
    ]


@given(JOURNALS)
def test_events_of_any_order_of_entries_keep_to_their_schema(entries: list[ev.Entry]) -> None:
    """Whatever happened to a run, and in whatever order."""
    assert checked(sensible(entries), "order-42:1")[0] == "RunStarted"


@pytest.mark.usefixtures("_quiet")
def test_events_of_generated_programs_keep_to_their_schema() -> None:
    """What replay really writes, with failures, cancels and children; and it is not all of one kind."""
    told: Counter[str] = Counter()
    for seed in range(PROGRAMS):
        told.update(checked(Shell(generate(random.Random(seed), depth=3), seed).play(), "generated"))

    assert told.keys() >= {"RunStarted", "StepStarted", "StepCompleted", "StepFailed", "RunCompleted"}
    assert told.keys() & {"RunFailed", "RunCancelled"}


@given(COMMANDS)
def test_commands_keep_to_the_schema_of_their_key(command: Command) -> None:
    """Whatever names, ids and payloads are allowed at the door, the schema allows."""
    publication = publication_of_command(command, "m")

    assert breaches(publication.routing_key, publication.message.body) == []
