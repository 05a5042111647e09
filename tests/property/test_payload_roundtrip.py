"""Fault 58: any JSON value round-trips byte-exact, any typed value by its hint, the rest is refused."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import math
import uuid
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel.journal.errors import InvalidRequest
from tidewheel.sdk.payload import canonical, decode, encode


class Kind(enum.Enum):
    """An enum of text."""

    A = "a"
    B = "b"


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One of each scalar."""

    text: str
    count: int
    share: float
    flag: bool
    raw: bytes
    price: decimal.Decimal
    key: uuid.UUID
    kind: Kind
    at: dt.datetime
    day: dt.date
    clock: dt.time
    lasts: dt.timedelta
    maybe: int | None


@dataclasses.dataclass(frozen=True)
class Tree:
    """One of each container."""

    leaves: list[Leaf]
    pair: tuple[int, str]
    numbers: frozenset[int]
    by_number: dict[int, str]
    by_key: dict[uuid.UUID, Leaf]
    below: Tree | None


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
INTEGERS = st.integers(-(2**63), 2**64 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
MINUTES = st.integers(-1439, 1439).map(lambda minutes: dt.timezone(dt.timedelta(minutes=minutes)))
SCALARS = st.none() | st.booleans() | INTEGERS | FLOATS | TEXT
JSON: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)
LEAVES = st.builds(
    Leaf,
    text=TEXT,
    count=INTEGERS,
    share=FLOATS,
    flag=st.booleans(),
    raw=st.binary(max_size=8),
    price=st.decimals(allow_nan=False),
    key=st.uuids(),
    kind=st.sampled_from(Kind),
    at=st.datetimes() | st.datetimes(timezones=MINUTES),
    day=st.dates(),
    clock=st.times() | st.times(timezones=MINUTES),
    lasts=st.timedeltas(),
    maybe=st.none() | INTEGERS,
)
TREES = st.recursive(
    st.none(),
    lambda below: st.builds(
        Tree,
        leaves=st.lists(LEAVES, max_size=2),
        pair=st.tuples(INTEGERS, TEXT),
        numbers=st.frozensets(INTEGERS, max_size=4),
        by_number=st.dictionaries(INTEGERS, TEXT, max_size=3),
        by_key=st.dictionaries(st.uuids(), LEAVES, max_size=2),
        below=below,
    ),
    max_leaves=3,
)


@given(JSON)
def test_json_values_round_trip_byte_exact(value: Any) -> None:
    """Also -0.0, 1e16, NUL, 64-bit numbers and the order of keys."""
    stored = msgspec.json.encode(encode(value))

    back = decode(msgspec.json.decode(stored), Any, where="it")

    assert msgspec.json.encode(back) == stored
    assert repr(back) == repr(value)


@given(TREES)
def test_typed_values_round_trip_by_hint(value: Tree | None) -> None:
    """What the code declared is what it gets, equal and of the same types."""
    stored = msgspec.json.decode(msgspec.json.encode(encode(value)))

    back = decode(stored, Tree | None, where="it")

    assert back == value
    assert canonical(encode(back)) == canonical(stored)


@given(st.dictionaries(TEXT, JSON, max_size=6))
def test_canonical_bytes_do_not_depend_on_the_order_of_keys(value: dict[str, Any]) -> None:
    """Two callers who built the same input differently asked for the same thing."""
    backwards = dict(reversed(value.items()))

    assert canonical(encode(backwards)) == canonical(encode(value))


BAD: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from([math.nan, math.inf, -math.inf, object(), len, ValueError(), 1j]),
    st.integers(min_value=2**64),
    st.integers(max_value=-(2**63) - 1),
    st.text(st.characters(categories=["Cs"]), min_size=1, max_size=2),
)


@given(BAD, st.lists(st.sampled_from("abc") | st.integers(0, 3), max_size=6), JSON)
def test_bad_values_are_refused_with_their_path(bad: Any, path: list[str | int], other: Any) -> None:
    """However deep the one bad value is, the message begins with the way to it."""
    value, shown = bad, ""
    for step in reversed(path):
        if isinstance(step, int):
            value, shown = [other] * step + [value, other], f"[{step}]{shown}"
        else:
            value, shown = {"z": other, step: value}, f".{step}{shown}"

    with pytest.raises(InvalidRequest) as refused:
        encode(value, where="input")

    assert str(refused.value).startswith(f"input{shown}: ")
