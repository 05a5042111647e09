"""Payloads: what becomes JSON, what comes back, and what is refused with its path."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import decimal
import enum
import io
import json
import pathlib
import uuid
import zoneinfo
from collections import OrderedDict
from typing import Annotated, Any, Literal, NamedTuple, NewType, NoReturn, TypedDict

import msgspec
import pydantic
import pytest

from tidewheel.journal.errors import InvalidRequest
from tidewheel.sdk.payload import PayloadError, canonical, decode, encode


class Colour(enum.Enum):
    """An enum of text."""

    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    """An enum that is an int."""

    S = 1
    L = 3


class Mood(enum.StrEnum):
    """An enum that is text."""

    GOOD = "good"


class Mixed(enum.Enum):
    """An enum whose values have no common type."""

    PAIR = (1, 2)
    HALF = 0.5
    NONE = None


class Access(enum.Flag):
    """Flags combine to values that no member has."""

    READ = 1
    WRITE = 2


@dataclasses.dataclass(frozen=True)
class Line:
    """One line of an order."""

    sku: str
    price: decimal.Decimal
    count: int = 1


@dataclasses.dataclass
class Order:
    """Nested data."""

    id: uuid.UUID
    lines: list[Line]
    note: str | None = None
    total: int = dataclasses.field(init=False, default=0)


@dataclasses.dataclass
class Priced:
    """A line whose price is a float."""

    price: float


class Point(NamedTuple):
    """A tuple with names."""

    x: int
    y: int = 0


class Tag(msgspec.Struct, tag="tag", rename="camel"):
    """A tagged struct whose field is renamed."""

    long_name: str
    gone: int | msgspec.UnsetType = msgspec.UNSET


class Pair(msgspec.Struct, array_like=True):
    """A struct written as a list."""

    a: int
    b: int


class Opts(TypedDict, total=False):
    """A typed dict."""

    retries: int
    tags: set[str]


class Address(pydantic.BaseModel):
    """A model with an alias that differs between reading and writing."""

    street: str = pydantic.Field(validation_alias="streetIn", serialization_alias="streetOut")
    number: int = 1

    @pydantic.computed_field  # type: ignore[prop-decorator]  # as pydantic documents it
    @property
    def label(self) -> str:
        """A field that is written but never read."""
        return f"{self.street} {self.number}"


class Strict(pydantic.BaseModel):
    """A model that takes no text for a datetime, except in JSON."""

    model_config = pydantic.ConfigDict(strict=True, extra="forbid")

    at: dt.datetime
    seen: frozenset[int] = frozenset()
    address: Address | None = None


@dataclasses.dataclass
class Parcel:
    """A dataclass that holds models."""

    to: Address
    via: list[Address] = dataclasses.field(default_factory=list)
    back: Address | None = None


@dataclasses.dataclass
class Circle:
    """One of two shapes."""

    radius: float


@dataclasses.dataclass
class Square:
    """The other."""

    side: float


@dataclasses.dataclass
class Drawing:
    """A dataclass that msgspec alone cannot build."""

    shapes: list[Circle | Square]
    mood: Mixed = Mixed.NONE
    owner: Address | str = "nobody"
    frame: Drawing | Circle | None = None


class Money(str):
    """Text with a class of its own."""

    __slots__ = ()


UserId = NewType("UserId", int)
ID = uuid.UUID("12345678-1234-5678-1234-567812345678")
ADDRESS = Address.model_validate({"streetIn": "Main"})
NAIVE = dt.datetime(2024, 2, 29, 1, 2, 3, 4)  # noqa: DTZ001 - naive ones are payloads too
LISBON = zoneinfo.ZoneInfo("Europe/Lisbon")

ROUND_TRIPS: list[tuple[object, Any]] = [
    (None, None),
    (True, bool),
    (2**64 - 1, int),
    (-(2**63), int),
    (-0.0, float),
    (1e16, float),
    ("\u0000 é \U0001f600", str),
    (b"\x00\xff", bytes),
    (bytearray(b"ab"), bytearray),
    (decimal.Decimal("1.10"), decimal.Decimal),
    (decimal.Decimal("1E+999999"), decimal.Decimal),
    (NAIVE, dt.datetime),
    (dt.datetime(2024, 2, 29, tzinfo=dt.UTC), dt.datetime),
    (dt.datetime(2024, 7, 1, tzinfo=LISBON), dt.datetime),
    (dt.datetime(1900, 1, 1, tzinfo=LISBON), dt.datetime),
    (dt.date(1, 1, 1), dt.date),
    (dt.time(1, 2, 3, 4), dt.time),
    (dt.timedelta.max, dt.timedelta),
    (dt.timedelta(microseconds=-1), dt.timedelta),
    (ID, uuid.UUID),
    (Colour.RED, Colour),
    (Size.L, Size),
    (Mood.GOOD, Mood),
    (Mixed.PAIR, Mixed),
    (Mixed.HALF, Mixed | int),
    (Access.READ | Access.WRITE, Access),
    ((1, "a"), tuple[int, str]),
    ((1, 2, 3), tuple[int, ...]),
    (Point(1, 2), Point),
    ({3, 1, 2}, set[int]),
    (frozenset({(1, 2)}), frozenset[tuple[int, int]]),
    ({1: "a", 2: "b"}, dict[int, str]),
    ({ID: 1}, dict[uuid.UUID, int]),
    ({dt.date(2024, 1, 1): 1}, dict[dt.date, int]),
    ({Colour.RED: 1, Colour.BLUE: 2}, dict[Colour, int]),
    (OrderedDict(b=1, a=2), OrderedDict),
    (Line("x", decimal.Decimal("0.10")), Line),
    (Order(ID, [Line("x", decimal.Decimal(1), 2)], note="n"), Order),
    (Tag("x"), Tag),
    (Pair(1, 2), Pair),
    ({"retries": 1, "tags": {"b", "a"}}, Opts),
    (ADDRESS, Address),
    (Strict(at=NAIVE, seen=frozenset({1}), address=ADDRESS), Strict),
    (Parcel(ADDRESS, [ADDRESS], ADDRESS), Parcel),
    ([ADDRESS, None], list[Address | None]),
    ({"a": [ADDRESS]}, dict[str, list[Address]]),
    (Square(2.0), Circle | Square),
    ([Circle(1.0), Square(2.0)], list[Circle | Square]),
    (ADDRESS, Address | str),
    ("plain", Address | str),
    (Drawing([Square(1.0)], Mixed.PAIR, ADDRESS, Drawing([])), Drawing),
    ("x", dt.datetime | str),
    (NAIVE, dt.datetime | str),
    (Money("5"), Money),
    (UserId(5), UserId),
    ("a", Literal["a", "b"]),
    (5, Annotated[int, msgspec.Meta(ge=1)]),
    (5, Annotated[int, []]),
]


@pytest.mark.parametrize(
    ("value", "hint"),
    ROUND_TRIPS,
    ids=[f"{place}-{type(v).__name__}" for place, (v, _) in enumerate(ROUND_TRIPS)],
)
def test_a_value_comes_back_as_its_hinted_type(value: object, hint: Any) -> None:
    """Encoding, storing as text and decoding gives the equal value of the same type."""
    stored = msgspec.json.decode(msgspec.json.encode(encode(value)))

    back = decode(stored, hint, where="it")

    assert back == value
    assert type(back) is type(value)


def test_encoding_gives_fresh_plain_containers() -> None:
    """What the caller changes later does not change what was encoded."""
    inner = [1]
    given = {"a": inner}

    data = encode(given)
    inner.append(2)

    assert data == {"a": [1]}
    assert type(encode(OrderedDict(a=1))) is dict


def test_decoding_without_a_hint_gives_a_fresh_copy() -> None:
    """Code that changes an untyped result does not change the journal's own value."""
    stored = {"a": [1]}

    back: Any = decode(stored, Any, where="it")
    back["a"].append(2)

    assert stored == {"a": [1]}


def test_keys_keep_their_order() -> None:
    """JSON objects are written in the order they were built; only `canonical` sorts."""
    data = encode({"b": 1, "a": 2})

    assert list(data) == ["b", "a"]
    assert list(decode(data, dict[str, int], where="it")) == ["b", "a"]  # type: ignore[call-overload]  # decode gives an object
    assert canonical(data) == b'{"a":2,"b":1}'


def test_enums_and_subclasses_are_written_as_plain_values() -> None:
    """The type of what is written is exactly a JSON type."""
    data = encode([Colour.RED, Size.L, Mood.GOOD, Money("5"), {Mood.GOOD: 1, Size.S: 2}])

    assert data == ["red", 3, "good", "5", {"good": 1, "1": 2}]
    assert [type(item) for item in data] == [str, int, str, str, dict]
    assert {type(key) for key in data[4]} == {str}


def test_one_and_true_and_one_point_zero_differ_in_canonical_form() -> None:
    """Inputs that Python calls equal are still told apart."""
    assert len({canonical(encode(value)) for value in (1, True, 1.0, "1")}) == 4


async def _forgotten() -> None: ...


def _loop() -> list[object]:
    loop: list[object] = []
    loop.append({"self": loop})
    return loop


def _deep(levels: int) -> object:
    inner: list[object] = []
    for _ in range(levels - 1):
        inner = [inner]
    return inner


class Widget:
    """Not a payload."""


class Secretive(pydantic.BaseModel):
    """A model with a secret, raw bytes, and anything."""

    inner: list[pydantic.SecretStr] = []
    raw: bytes = b""
    anything: Any = None


REFUSED: list[tuple[object, str]] = [
    ([{"lines": [0, Priced(float("nan"))]}], "v[0].lines[1].price: NaN is not JSON; use None or a Decimal"),
    ({"a b": float("-inf")}, 'v["a b"]: Infinity is not JSON'),
    (2**64, "v: a whole number outside -2**63..2**64-1; pass it as a string or Decimal"),
    (10**5000, "v: a whole number outside"),
    ({"a": -(2**63) - 1}, "v.a: a whole number"),
    (["\ud800"], "v[0]: text with a lone surrogate"),
    ({"\ud800": 1}, 'v["\\ud800"]: text with a lone surrogate'),
    (_loop(), "v[0].self: refers back to v, and JSON has no circular references"),
    (_deep(65), "[0]: nested deeper than 64 levels"),
    ({1: "a", "1": "b"}, 'v: two keys both become ["1"] in JSON'),
    ({True: 1}, "v[bool]: a key of type bool is not JSON"),
    ({(1, 2): 1}, "v[tuple]: a key of type tuple is not JSON"),
    ({ID, str(ID)}, "v[*]: two elements become the same JSON; pass a list"),
    ({"w": Widget()}, "Widget is not a payload type; make it a dataclass"),
    (Widget, "v: the class Widget is not data; pass an instance"),
    (json.loads, "v: the function loads is not data; pass what it returns"),
    ([len], "v[0]: the function len is not data"),
    (io.StringIO(), "v: an open file is not data; pass its path or its contents"),
    (ValueError("x"), "v: the exception ValueError is not data; raise it, or pass str() of it"),
    ((i for i in [1]), "v: the generator <genexpr> is not data; pass a list"),
    (pathlib.Path("x"), "is not a payload type; pass str() of it"),
    (object(), "v: builtins.object is not a payload type"),
    (1j, "v: builtins.complex is not a payload type"),
    (dt.time(1, tzinfo=LISBON), "v: a time of day in a zone has no fixed offset"),
    (Secretive(inner=[pydantic.SecretStr("x")]), "v.inner[0]: a secret is not journaled"),
    ([Secretive(raw=b"\xff")], "v[0]: bytes that are not UTF-8; set ser_json_bytes"),
    ([Secretive(anything=Widget())], "v[0]: pydantic cannot write it: Unable to serialize unknown type"),
    (Secretive(anything=[float("nan")]), "v.anything[0]: NaN is not JSON"),
    (Secretive.model_construct(raw=5), "v: pydantic cannot write it"),
]


@pytest.mark.parametrize(("value", "message"), REFUSED, ids=[message[:40] for _, message in REFUSED])
def test_what_is_not_json_is_refused_with_its_path(value: object, message: str) -> None:
    """The message says where the value is and what to pass instead."""
    with pytest.raises(InvalidRequest) as refused:
        encode(value, where="v")

    assert message in str(refused.value)


def test_a_forgotten_await_is_named() -> None:
    """A coroutine or a promise among the arguments is nearly always that mistake."""
    coroutine = _forgotten()

    with pytest.raises(InvalidRequest, match=r"v\[0\]: the coroutine of _forgotten\(\).*forget to await"):
        encode([coroutine], where="v")
    coroutine.close()

    async def future() -> None:
        with pytest.raises(InvalidRequest, match="forget to await"):
            encode(asyncio.get_running_loop().create_future())

    asyncio.run(future())


def test_sixty_four_levels_are_accepted() -> None:
    """The bound is on what is deeper."""
    assert encode(_deep(64)) == _deep(64)


def test_an_attribute_without_a_value_is_refused() -> None:
    """A slot that was never set has nothing to store."""
    order = object.__new__(Line)

    with pytest.raises(InvalidRequest, match=r"value\.sku: has no value yet"):
        encode(order)


MISMATCHES: list[tuple[Any, Any, str]] = [
    ({"price": "abc"}, Priced, "it.price: expected a number, but the payload has text"),
    ([{"price": 1}, {}], list[Priced], "it[1]: the field 'price' is missing"),
    ({"a": 1}, dict[str, str], "it[...]: expected text, but the payload has a whole number"),
    ({"a": 1}, dict[int, int], "(a key): expected a whole number, but the payload has text"),
    (None, int | str, "it: expected a whole number or text, but the payload has null"),
    ("x", dt.datetime, "it: expected what the type says, but the payload has an invalid RFC3339"),
    ("!", bytes, "it: expected what the type says, but the payload has an invalid base64"),
    ("green", Colour, "it: expected one of the values of the enum"),
    (7, Mixed, "it: expected one of the 3 values of Mixed"),
    (0, Annotated[int, msgspec.Meta(ge=1)], "it: expected a whole number >= 1"),
    ([1, 2], tuple[int], "it: expected a list of length 1"),
    ([{"streetIn": "x", "number": "y"}], list[Address], "it[0].number: Input should be a valid integer"),
    ({"to": {"streetIn": 5}}, Parcel, "it.to.streetIn: Input should be a valid string"),
    ({"shapes": [{"edge": 1}]}, Drawing, "it.shapes[0]: fits none of Circle (the field 'radius' is missing"),
    ({"shapes": "x"}, Drawing, "it.shapes: expected a list, but the payload has text"),
    ({"mood": None}, Drawing, "it: the field 'shapes' is missing, and Drawing has no default for it"),
    ([1], Drawing, "it: expected an object for Drawing"),
    ("x", Widget, "it: Widget is not a payload type; use a dataclass"),
]


@pytest.mark.parametrize(("data", "hint", "message"), MISMATCHES, ids=[m[:50] for *_, m in MISMATCHES])
def test_json_that_does_not_fit_is_refused_with_both_sides(data: Any, hint: Any, message: str) -> None:
    """The message has the path, what the type wants and what the payload has."""
    with pytest.raises(PayloadError) as refused:
        decode(data, hint, where="it")

    assert message in str(refused.value)


def test_a_payload_error_shows_no_payload_content() -> None:
    """Errors are logged; payloads may be private."""
    with pytest.raises(PayloadError) as refused:
        decode({"to": {"streetIn": ["hunter2"]}}, Parcel, where="it")

    assert "hunter2" not in str(refused.value)


def test_types_may_grow_while_runs_sleep() -> None:
    """Unknown fields are ignored and missing ones with a default are filled."""
    old = {"sku": "x", "price": "1", "colour": "red"}

    assert decode(old, Line, where="it") == Line("x", decimal.Decimal(1))
    assert decode([1], Point, where="it") == Point(1)
    assert decode({"shapes": [], "style": 1}, Drawing, where="it") == Drawing([])


def test_models_are_read_by_alias_too() -> None:
    """A start message from outside uses the names of the model's schema."""
    assert decode({"streetIn": "Main"}, Address, where="it") == ADDRESS


def test_hints_that_say_nothing_leave_plain_json() -> None:
    """A missing hint, `Any`, `object` and `NoReturn` take what is there."""
    for hint in (Any, object, NoReturn):
        assert decode({"a": [1]}, hint, where="it") == {"a": [1]}


def test_a_type_that_cannot_be_read_back_is_named() -> None:
    """The class is at fault, not the payload."""

    @dataclasses.dataclass
    class Local:
        other: Unknown  # type: ignore[name-defined]  # noqa: F821 - that is the point

    @dataclasses.dataclass
    class Init:
        seed: dataclasses.InitVar[int]

    with pytest.raises(InvalidRequest, match="define the classes of its fields at module level"):
        decode({}, Local, where="it")
    with pytest.raises(InvalidRequest, match="an InitVar is not stored"):
        decode({}, Init, where="it")
