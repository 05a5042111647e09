"""The stored form of events: exact bytes, versions, and what is refused."""

from __future__ import annotations

import zlib

import pytest

from tidewheel.journal import codec
from tidewheel.journal.codec import CorruptEvent, UnknownCodec, UnknownEvent, Upcaster, decode, encode
from tidewheel.journal.errors import TidewheelError
from tidewheel.journal.events import (
    EVENT_TYPES,
    Event,
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


def test_events_are_stored_together_each_with_its_type() -> None:
    """The bytes are a list of the events' fields, and nothing else."""
    stored = encode([STARTED, StateSet(key="k", value=1)])

    assert stored == (
        b'[{"type":"InvokeStarted","promise_id":"1.0","attempt":2},{"type":"StateSet","key":"k","value":1}]'
    )


def test_stored_events_read_back_as_they_were() -> None:
    """Decoding is the inverse of encoding."""
    events: list[Event] = [STARTED, InvokeCompleted(promise_id="1.0", result=Result(ok={"id": 1}), attempt=2)]

    assert decode(encode(events)) == events
    assert decode(encode([])) == []


@pytest.mark.parametrize(
    "value",
    ["\x00", -0.0, 1e16, 5e-324, 2**200, {"b": 1, "a": {"z": [], "y": None}}, "\U0001f30a", [], None],
    ids=repr,
)
def test_payloads_keep_their_exact_bytes(value: Json) -> None:
    """What jsonb would change comes back as it was: text, kind of number, order of keys."""
    stored = encode([StateSet(key="k", value=value)])

    (again,) = decode(stored)

    assert isinstance(again, StateSet)
    assert repr(again.value) == repr(value)
    assert encode([again]) == stored


def test_a_result_of_null_is_not_a_missing_result() -> None:
    """``{"ok": null}`` is written and read as such."""
    stored = encode([InvokeCompleted(promise_id="0", result=Result(ok=None), attempt=1)])

    assert b'"result":{"ok":null}' in stored
    assert encode(decode(stored)) == stored


def test_unset_fields_are_left_out() -> None:
    """A field that was never given takes no room."""
    assert b"state" not in encode([ExecutionStarted(workflow="w")])


def test_unknown_fields_are_ignored() -> None:
    """A later release may have added a field with a default."""
    stored = b'[{"type":"InvokeStarted","promise_id":"1.0","attempt":2,"worker":"w-7"}]'

    assert decode(stored) == [STARTED]


def test_an_unknown_type_asks_for_an_upgrade() -> None:
    """A type this release does not have was written by a newer one; which of the events it is is said."""
    stored = encode([STARTED])[:-1] + b',{"type":"TideTurned"}]'

    with pytest.raises(UnknownEvent, match=r"event 'TideTurned': upgrade the workers") as caught:
        decode(stored)

    assert (caught.value.tag, caught.value.place) == ("TideTurned", 1)
    assert isinstance(caught.value, TidewheelError)


def test_a_newer_form_asks_for_an_upgrade() -> None:
    """A form this release does not have is refused, even if its fields look right."""
    with pytest.raises(UnknownEvent, match=r"'InvokeStarted.2' \(newest known: 'InvokeStarted'\)"):
        decode(b'[{"type":"InvokeStarted.2","promise_id":"1.0","attempt":2}]')


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (b'"attempt":1}]', "promise_id"),
        (b'"promise_id":"1"}]', "attempt"),
        (b'"promise_id":"1","attempt":0}]', "attempt"),
        (b'"promise_id":"1","attempt":"1"}]', "attempt"),
        (b'"promise_id":"01","attempt":1}]', "promise_id"),
    ],
    ids=lambda case: str(case)[:40],
)
def test_fields_that_are_no_such_event_are_named(data: bytes, field: str) -> None:
    """A corrupt event says which type it should be, which field is wrong, and where it stands."""
    with pytest.raises(CorruptEvent) as caught:
        decode(b'[{"type":"StateCleared","key":"k"},{"type":"InvokeStarted",' + data)

    error = caught.value
    assert (error.place, error.tag, error.field) == (1, "InvokeStarted", field)
    assert error.reason
    assert "InvokeStarted" in str(error)
    assert isinstance(error, TidewheelError)


@pytest.mark.parametrize(
    "data",
    [
        b'[{"type":"InvokeStarted","promise_id":"1","att',
        b'[{"type":"InvokeStarted","promise_id":"\xff","attempt":1}]',
        b'[{"type":"InvokeStarted","promise_id":"1","attempt":1}] trailing',
        b'[{"type":"StateSet","key":"k","value":' + b"[" * 100_000,
        b'[{"promise_id":"1","attempt":1}]',
        b'[{"type":7}]',
        b"[7]",
        b"{}",
        b"",
    ],
    ids=lambda case: str(case)[:40],
)
def test_bytes_that_are_no_events_are_refused(data: bytes) -> None:
    """Whatever they are, they are called corrupt."""
    with pytest.raises(CorruptEvent, match="cannot be read"):
        decode(data)


def test_a_fault_inside_a_field_names_the_events_field() -> None:
    """The field of the event is named, however deep the fault."""
    data = b'[{"type":"InvokeCompleted","promise_id":"1","attempt":1,"result":{"error":{"type":3}}}]'

    with pytest.raises(CorruptEvent, match="field 'result' of event 'InvokeCompleted'") as caught:
        decode(data)

    assert caught.value.field == "result"


def test_old_forms_are_brought_up_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each upcaster goes one form up, and they are applied in order; others beside them stay as they are."""
    forms = {
        "StepBegun": Upcaster("StepBegun.2", lambda old: {"promise": old["p"], "tries": old["n"]}),
        "StepBegun.2": Upcaster(
            "InvokeStarted", lambda old: {"promise_id": old["promise"], "attempt": old["tries"]}
        ),
    }
    for tag, upcaster in forms.items():
        monkeypatch.setitem(codec.UPCASTERS, tag, upcaster)

    events = decode(
        b'[{"type":"StepBegun","p":"1.0","n":2},{"type":"StepBegun.2","promise":"1.0","tries":2},'
        b'{"type":"InvokeStarted","promise_id":"1.0","attempt":2}]'
    )

    assert events == [STARTED] * 3


def test_what_an_upcaster_makes_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """An upcaster that gets a field wrong is found out by the field's name."""
    upcaster = Upcaster("InvokeStarted", lambda old: old | {"attempt": 0})
    monkeypatch.setitem(codec.UPCASTERS, "StepBegun", upcaster)

    with pytest.raises(CorruptEvent, match="field 'attempt'"):
        decode(b'[{"type":"StepBegun","promise_id":"1"}]')


def test_every_older_form_leads_to_one_that_is_written_today() -> None:
    """What a release could write, this one can read."""
    for tag in codec.UPCASTERS:
        newer = tag
        while newer in codec.UPCASTERS:
            newer = codec.UPCASTERS[newer].tag

        assert newer in codec.TAGS
        assert tag not in codec.TAGS
    assert list(codec.TAGS.values()) == list(EVENT_TYPES.values())


def test_a_codec_may_be_put_around_the_json() -> None:
    """The bytes come back through it."""
    deflate = Deflate()

    stored = encode([STARTED], deflate)

    assert stored != encode([STARTED])
    assert decode(stored, "deflate", {"deflate": deflate}) == [STARTED]


def test_plain_events_are_read_whatever_codecs_are_configured() -> None:
    """Journals from before a codec was configured stay readable."""
    assert decode(encode([STARTED]), codecs={"deflate": Deflate()}) == [STARTED]


def test_a_codec_that_is_not_configured_is_named() -> None:
    """The operator learns which codec to configure."""
    with pytest.raises(UnknownCodec, match="'deflate', which is not configured") as caught:
        decode(encode([STARTED], Deflate()), "deflate")

    assert caught.value.codec == "deflate"


def test_bytes_that_a_codec_refuses_are_corrupt() -> None:
    """What cannot be unwrapped is corrupt like anything else."""
    with pytest.raises(CorruptEvent, match="the stored events cannot be read"):
        decode(b"not deflated", "deflate", {"deflate": Deflate()})
