"""The arguments of a call: how many a function takes, and of which types.

Durable calls pass positional arguments only. Their number is checked where the
call is made. Types are resolved when the first payload is read, not at decoration:
by then every class that an annotation names exists.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any

from tidewheel.journal.errors import InvalidRequest
from tidewheel.journal.events import Json
from tidewheel.sdk.payload.decoding import IMMUTABLE, decode
from tidewheel.sdk.payload.encoding import ENCODERS, first_seen
from tidewheel.sdk.payload.refusal import PayloadError, Refused
from tidewheel.sdk.source import closure_values, plain_function

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hints:
    """What a function takes after its skipped parameters, and what it returns.

    ``required`` of the ``names`` have no default; ``variadic`` names its ``*args``.
    """

    function: str
    names: tuple[str, ...]
    required: int
    variadic: str | None
    annotations: tuple[Any, ...] = dataclasses.field(repr=False)
    returned: Any = dataclasses.field(repr=False)
    scope: Callable[[], tuple[dict[str, Any], dict[str, Any]]] = dataclasses.field(repr=False, compare=False)

    @functools.cached_property
    def types(self) -> tuple[Any, ...]:
        """The hint of each parameter, then that of ``*args`` if there is one; `Any` where unknown."""
        namespaces = self.scope()
        return tuple(_resolved(annotation, *namespaces) for annotation in self.annotations)

    @functools.cached_property
    def returns(self) -> Any:
        """The hint of the result; `Any` where unknown."""
        return _resolved(self.returned, *self.scope())

    @functools.cached_property
    def at_most(self) -> int:
        """How many arguments it can take."""
        return len(self.names) if self.variadic is None else sys.maxsize

    def miscounted(self, count: int) -> InvalidRequest:
        """Say that a call has *count* arguments, which the function cannot take."""
        return InvalidRequest(f"{self._taken()}, but {_given(count)}")

    def _taken(self) -> str:
        shown = [name if place < self.required else f"{name}=..." for place, name in enumerate(self.names)]
        if self.variadic is not None:
            shown.append(f"*{self.variadic}")
        return f"{self.function} takes ({', '.join(shown)})"


def signature_hints(fn: Callable[..., object], *, skip: int) -> Hints:
    """Return what *fn* takes after its first *skip* parameters; remembered per module-level function."""
    if "<locals>" in getattr(fn, "__qualname__", ""):
        # Made anew on each call of the code around it: remembering would only keep its closure alive.
        return _hints.__wrapped__(fn, skip)
    try:
        return _hints(fn, skip)
    except TypeError:  # an unhashable callable object
        return _hints.__wrapped__(fn, skip)


def encode_args(hints: Hints, args: Sequence[object], where: str = "input") -> list[Json]:
    """Return *args* as JSON, refusing a wrong number of them or a value that is not data."""
    if not hints.required <= len(args) <= hints.at_most:
        raise hints.miscounted(len(args))
    out: list[Json] = []
    try:
        for arg in args:
            out.append(ENCODERS.get(type(arg), first_seen)(arg, 0))  # noqa: PERF401 - len(out) is the path
    except Refused as refused:
        refused.within(args, f"[{len(out)}]")
        raise InvalidRequest(refused.message(where)) from None
    return out


def decode_args(hints: Hints, data: Sequence[Json], where: str = "input") -> tuple[object, ...]:
    """Return the arguments to call the function with; those left out have defaults."""
    if not hints.required <= len(data) <= hints.at_most:
        raise PayloadError(f"{where}: {hints.miscounted(len(data))}")
    wanted, last = hints.types, len(hints.types) - 1
    out: list[object] = []
    for i, item in enumerate(data):
        hint = wanted[i] if i < last else wanted[last]
        is_so = type(item) is hint and hint in IMMUTABLE
        out.append(item if is_so else decode(item, hint, where=f"{where}[{i}]"))
    return tuple(out)


@functools.lru_cache(maxsize=4096)
def _hints(fn: Callable[..., object], skip: int) -> Hints:
    name = getattr(fn, "__qualname__", type(fn).__qualname__).rpartition("<locals>.")[2]
    try:
        signature = inspect.signature(fn)
    except ValueError:  # a builtin that does not say; let it judge its arguments itself
        signature = inspect.Signature([inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)])
    parameters = list(signature.parameters.values())
    positional = [p for p in parameters if p.kind in _POSITIONAL]
    variadic = next((p for p in parameters if p.kind is inspect.Parameter.VAR_POSITIONAL), None)
    if len(positional) < skip and variadic is None:
        raise InvalidRequest(f"{name} takes {len(positional)} parameters; its first must be the context")
    for p in parameters:
        if p.kind is inspect.Parameter.KEYWORD_ONLY and p.default is inspect.Parameter.empty:
            raise InvalidRequest(f"{name} must take {p.name!r} by position: durable calls pass no keywords")
    taken = positional[skip:]
    shown = [*taken, variadic] if variadic is not None else taken
    return Hints(
        function=name,
        names=tuple(p.name for p in taken),
        required=sum(p.default is inspect.Parameter.empty for p in taken),
        variadic=variadic.name if variadic is not None else None,
        annotations=tuple(p.annotation for p in shown),
        returned=signature.return_annotation,
        scope=functools.partial(_scope, fn),
    )


def _given(count: int) -> str:
    return "1 argument was given" if count == 1 else f"{count} arguments were given"


def _scope(fn: Callable[..., object]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The names that annotations of *fn* may use: its module's, and what it closes over."""
    function = plain_function(fn)
    if function is None:
        return {}, {}
    parameters = {p.__name__: p for p in getattr(function, "__type_params__", ())}  # Python 3.12
    return function.__globals__, {**parameters, **closure_values(function)}


def _resolved(annotation: Any, module: dict[str, Any], local: dict[str, Any]) -> Any:
    if annotation is inspect.Parameter.empty:
        return Any
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        # get_type_hints also resolves the strings inside list["Order"].
        return typing.get_type_hints(holder, module, local, include_extras=True)["it"]
    except Exception:  # noqa: BLE001 - an annotation is arbitrary code; one that cannot run says nothing
        return Any
