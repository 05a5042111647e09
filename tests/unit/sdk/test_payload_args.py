"""Arguments of durable calls: how many, of which types, and what is said when they are wrong."""

from __future__ import annotations

import dataclasses
import enum
import functools
import gc
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tidewheel.journal.errors import InvalidRequest
from tidewheel.sdk.payload import PayloadError, decode_args, encode, encode_args, signature_hints

if TYPE_CHECKING:
    from nowhere import Missing  # type: ignore[import-not-found]  # the annotation must not resolve


class Colour(enum.Enum):
    """An enum of text."""

    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass(frozen=True)
class Line:
    """One line of an order."""

    sku: str
    count: int = 1


@dataclasses.dataclass
class Order:
    """Nested data."""

    id: str
    lines: list[Line]


async def fulfil(ctx: object, order: Order, urgent: bool = False, *tags: Colour) -> list[Line]:
    """A workflow with everything."""
    return order.lines


async def partly_known(ctx: object, gone: Missing, line: Line) -> None:
    """A workflow one of whose annotations cannot be resolved."""


def test_arguments_come_back_typed() -> None:
    """Each argument is read by its parameter's hint, and the rest by that of ``*args``."""
    hints = signature_hints(fulfil, skip=1)
    args = (Order("o", []), True, Colour.RED, Colour.BLUE)

    data = encode_args(hints, args)

    assert data[1:] == [True, "red", "blue"]
    assert decode_args(hints, data) == args
    assert hints.returns == list[Line]


def test_defaults_are_left_to_the_function() -> None:
    """An argument that was not passed is not journaled."""
    hints = signature_hints(fulfil, skip=1)

    assert (hints.names, hints.required, hints.variadic) == (("order", "urgent"), 1, "tags")
    assert len(decode_args(hints, encode_args(hints, (Order("o", []),)))) == 1


def test_a_wrong_number_of_arguments_is_refused_at_the_call() -> None:
    """The message names the function, what it takes and how much was given."""

    def charge(order: Order, retries: int = 3) -> None: ...

    hints = signature_hints(charge, skip=0)

    with pytest.raises(InvalidRequest, match=r"charge takes \(order, retries=\.\.\.\), but 0 arguments were"):
        encode_args(hints, ())
    with pytest.raises(InvalidRequest, match="but 3 arguments were given"):
        encode_args(hints, (1, 2, 3))
    with pytest.raises(PayloadError, match=r"input: charge takes .* but 0 arguments were given"):
        decode_args(hints, [])


def test_a_bad_argument_is_refused_with_its_position() -> None:
    """The first step of the path is the argument's place in the call."""
    hints = signature_hints(fulfil, skip=1)

    with pytest.raises(InvalidRequest, match=r"^input\[1\]\.a: NaN is not JSON"):
        encode_args(hints, (1, {"a": float("nan")}))
    with pytest.raises(PayloadError, match=r"^input\[1\]: expected true or false, but the payload has text"):
        decode_args(hints, [encode(Order("o", [])), "x"])


def test_an_annotation_that_cannot_be_resolved_means_any() -> None:
    """One unknown name does not take the types of the other parameters away."""
    hints = signature_hints(partly_known, skip=1)

    assert hints.types == (Any, Line)
    assert hints.returns is type(None)


def test_classes_defined_in_a_function_are_found_through_its_closure() -> None:
    """String annotations of a nested function see what it closes over."""

    @dataclasses.dataclass
    class Local:
        x: int

    def task(it: Local) -> Local:
        return Local(it.x)

    hints = signature_hints(task, skip=0)

    assert hints.types == (Local,)
    assert decode_args(hints, [{"x": 1}]) == (Local(1),)


def test_wrapped_partial_and_bound_functions_are_understood() -> None:
    """Hints come from the function that is really called."""

    def plain(line: Line, count: int) -> None: ...

    @functools.wraps(plain)
    def wrapped(*args: object) -> None: ...

    class Service:
        def method(self, line: Line) -> None: ...

        def __call__(self, line: Line) -> None: ...

    service = Service()
    partial = functools.partial(plain, count=1)
    functions: list[Callable[..., object]] = [wrapped, partial, service.method, service]
    for fn in functions:
        assert signature_hints(fn, skip=0).types[0] is Line
    assert signature_hints(max, skip=0).variadic == "args"


def test_hints_are_remembered_per_function() -> None:
    """Looking at a signature is slow, so it is done once."""
    assert signature_hints(fulfil, skip=1) is signature_hints(fulfil, skip=1)


def test_what_a_local_function_closes_over_is_not_kept_alive() -> None:
    """A lambda passed to ``ctx.run`` is a new function each time, with the run's data in its closure."""
    held = Order("o", [])
    gone = weakref.ref(held)

    def look(it: Order) -> int:
        return signature_hints(lambda: it, skip=0).required

    look(held)
    del held
    gc.collect()

    assert gone() is None


def test_functions_that_durable_calls_cannot_call_are_refused() -> None:
    """Durable calls pass positional arguments, and a workflow takes its context first."""

    def keyword(ctx: object, *, must: int) -> None: ...

    def nothing() -> None: ...

    with pytest.raises(InvalidRequest, match="keyword must take 'must' by position"):
        signature_hints(keyword, skip=1)
    with pytest.raises(InvalidRequest, match="its first must be the context"):
        signature_hints(nothing, skip=1)
