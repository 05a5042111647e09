"""The stored form of events: exact bytes, versions, and what is refused."""

from __future__ import annotations

import zlib

import msgspec
import pytest

from tidewheel.journal import codec
from tidewheel.journal.codec import CorruptEvent, StoredEvent, UnknownCodec, UnknownEvent, decode, encode
from tidewheel.journal.errors import TidewheelError
from tidewheel.journal.events import (
    EVENT_TYPES,
    ExecutionStarted,
    InvokeCompleted,
    InvokeStarted,
    Json,
    Result,
    StateSet,
)

STARTED = InvokeStarted(promise_id="1.0", attempt=2)


class Deflate:
    """A codec as a user may write one."""

    id = "deflate"

    def encode(self, data: bytes, /) -> bytes:
        """Compress."""
        return zlib.compress(data)

    def decode(self, data: bytes, /) -> bytes:
        """Restore, refusing what is not ours as the protocol asks."""
        try:
            return zlib.decompress(data)
        except zlib.error as error:
            raise ValueError(str(error)) from error


def test_an_event_is_stored_as_type_version_codec_and_json() -> None:
    """The bytes are the event's fields and nothing else."""
    stored = encode(STARTED)

    assert stored == StoredEvent("InvokeStarted", 1, "json", b'{"promise_id":"1.0","attempt":2}')


def test_a_stored_event_reads_back_as_it_was() -> None:
    """Decoding is the inverse of encoding."""
    event = InvokeCompleted(promise_id="1", result=Result(ok={"id": 1}), attempt=1)

    assert decode(encode(event)) == event


@pytest.mark.parametrize(
    "value",
    ["\x00", -0.0, 1e16, 5e-324, 2**200, {"b": 1, "a": {"z": [], "y": None}}, "\U0001f30a", [], None],
    ids=repr,
)
def test_payloads_keep_their_exact_bytes(value: Json) -> None:
    """What jsonb would change comes back as it was: text, kind of number, order of keys."""
    stored = encode(StateSet(key="k", value=value))

    again = decode(stored)

    assert isinstance(again, StateSet)
    assert repr(again.value) == repr(value)
    assert encode(again) == stored


def test_a_result_of_null_is_not_a_missing_result() -> None:
    """``{"ok": null}`` is written and read as such."""
    stored = encode(InvokeCompleted(promise_id="0", result=Result(ok=None), attempt=1))

    assert b'"result":{"ok":null}' in stored.data
    assert encode(decode(stored)) == stored


def test_unset_fields_are_left_out() -> None:
    """A field that was never given takes no room."""
    assert b"state" not in encode(ExecutionStarted(workflow="w")).data


def test_unknown_fields_are_ignored() -> None:
    """A later release may have added a field with a default."""
    stored = StoredEvent("InvokeStarted", 1, "json", b'{"promise_id":"1.0","attempt":2,"worker":"w-7"}')

    assert decode(stored) == STARTED


def test_an_unknown_type_asks_for_an_upgrade() -> None:
    """A type this release does not have was written by a newer one."""
    with pytest.raises(UnknownEvent, match=r"event 'TideTurned'.*upgrade the workers") as caught:
        decode(StoredEvent("TideTurned", 1, "json", b"{}"))

    assert (caught.value.type, caught.value.version, caught.value.known) == ("TideTurned", 1, None)
    assert isinstance(caught.value, TidewheelError)


def test_a_newer_version_asks_for_an_upgrade() -> None:
    """A version this release does not have is refused, even if its fields look right."""
    with pytest.raises(UnknownEvent, match=r"version 2 of event .*newest known: 1") as caught:
        decode(msgspec.structs.replace(encode(STARTED), version=2))

    assert (caught.value.type, caught.value.version, caught.value.known) == ("InvokeStarted", 2, 1)


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (b'{"attempt":1}', "promise_id"),
        (b'{"promise_id":"1"}', "attempt"),
        (b'{"promise_id":"1","attempt":0}', "attempt"),
        (b'{"promise_id":"1","attempt":"1"}', "attempt"),
        (b'{"promise_id":"01","attempt":1}', "promise_id"),
        (b'{"promise_id":"1","att', None),
        (b'{"promise_id":"\xff","attempt":1}', None),
        (b'{"promise_id":"1","attempt":1} trailing', None),
        (b'{"x":' + b"[" * 100_000, None),
        (b"[]", None),
        (b"", None),
    ],
    ids=lambda case: str(case)[:40],
)
def test_bytes_that_are_no_such_event_are_named(data: bytes, field: str | None) -> None:
    """A corrupt event says which type it should be, and which field is wrong where that is known."""
    with pytest.raises(CorruptEvent) as caught:
        decode(StoredEvent("InvokeStarted", 1, "json", data))

    assert (caught.value.type, caught.value.field) == ("InvokeStarted", field)
    assert caught.value.reason
    assert "InvokeStarted" in str(caught.value)
    assert isinstance(caught.value, TidewheelError)


def test_a_fault_inside_a_field_names_the_events_field() -> None:
    """The field of the event is named, however deep the fault."""
    data = b'{"promise_id":"1","attempt":1,"result":{"error":{"type":3}}}'

    with pytest.raises(CorruptEvent, match="field 'result' of event 'InvokeCompleted'") as caught:
        decode(StoredEvent("InvokeCompleted", 1, "json", data))

    assert caught.value.field == "result"


def test_a_version_below_one_is_corrupt() -> None:
    """Versions count from one."""
    with pytest.raises(CorruptEvent, match="no version 0"):
        decode(msgspec.structs.replace(encode(STARTED), version=0))


def test_old_versions_are_brought_up_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each upcaster goes one version up, and they are applied in order."""
    monkeypatch.setitem(codec.VERSIONS, "InvokeStarted", 3)
    steps: dict[int, codec.Upcaster] = {
        1: lambda old: {"promise": old["p"], "tries": old["n"]},
        2: lambda old: {"promise_id": old["promise"], "attempt": old["tries"]},
    }
    for version, upcaster in steps.items():
        monkeypatch.setitem(codec.UPCASTERS, ("InvokeStarted", version), upcaster)

    first = decode(StoredEvent("InvokeStarted", 1, "json", b'{"p":"1.0","n":2}'))
    second = decode(StoredEvent("InvokeStarted", 2, "json", b'{"promise":"1.0","tries":2}'))

    assert first == second == STARTED
    assert encode(first).version == 3
    assert decode(encode(first)) == STARTED


def test_what_an_upcaster_makes_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """An upcaster that gets a field wrong is found out by the field's name."""
    monkeypatch.setitem(codec.VERSIONS, "InvokeStarted", 2)
    monkeypatch.setitem(codec.UPCASTERS, ("InvokeStarted", 1), lambda old: old | {"attempt": 0})

    with pytest.raises(CorruptEvent, match="field 'attempt'"):
        decode(StoredEvent("InvokeStarted", 1, "json", b'{"promise_id":"1"}'))


def test_every_version_below_the_newest_has_an_upcaster() -> None:
    """What a release could write, this one can read."""
    wanted = {(name, version) for name, newest in codec.VERSIONS.items() for version in range(1, newest)}

    assert set(codec.UPCASTERS) == wanted
    assert list(codec.VERSIONS) == list(EVENT_TYPES)


def test_a_codec_may_be_put_around_the_json() -> None:
    """The codec's id is stored, and the bytes come back through it."""
    deflate = Deflate()

    stored = encode(STARTED, deflate)

    assert stored.codec == "deflate"
    assert stored.data != encode(STARTED).data
    assert decode(stored, {"deflate": deflate}) == STARTED


def test_plain_events_are_read_whatever_codecs_are_configured() -> None:
    """Journals from before a codec was configured stay readable."""
    assert decode(encode(STARTED), {"deflate": Deflate()}) == STARTED


def test_a_codec_that_is_not_configured_is_named() -> None:
    """The operator learns which codec to configure."""
    with pytest.raises(UnknownCodec, match="'deflate', which is not configured") as caught:
        decode(encode(STARTED, Deflate()))

    assert (caught.value.type, caught.value.codec) == ("InvokeStarted", "deflate")


def test_bytes_that_a_codec_refuses_are_corrupt() -> None:
    """A wrapped event that cannot be unwrapped is named like any other corrupt one."""
    with pytest.raises(CorruptEvent, match="event 'InvokeStarted' cannot be read"):
        decode(StoredEvent("InvokeStarted", 1, "deflate", b"not deflated"), {"deflate": Deflate()})
