"""What is said when a value cannot become JSON, or JSON not the value it should be.

Every refusal has the path to the offending value and what to do about it. The
path is collected while the error travels outwards, so a good value pays nothing
for it. Messages name types and places, never the payload's content: errors are
logged and journaled, payloads may be private.
"""

from __future__ import annotations

import io
import json
import pathlib
import types
from typing import Final

from tidewheel.journal.errors import InvalidRequest

#: Containers inside one another; what is deeper breaks parsers before it helps anybody.
DEPTH_MAX: Final = 64
_KEY_SHOWN_MAX: Final = 40


class PayloadError(InvalidRequest):
    """A stored or received payload does not fit the type the code declares for it."""


class Refused(Exception):
    """A value that is not data; each container it passes on its way out adds its step."""

    def __init__(self, reason: str, *, too_deep: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.too_deep = too_deep
        self.steps: list[tuple[str, object]] = []

    def within(self, container: object, at: str) -> None:
        """Note that the offending value is in *container*, at the step *at*."""
        self.steps.append((at, container))

    def message(self, where: str) -> str:
        """Say it, with *where* naming the outermost value."""
        steps = self.steps[::-1]
        if self.too_deep:
            for place, (_, container) in enumerate(steps):
                for end in range(place + 1, len(steps)):
                    if steps[end][1] is container:
                        return _circle(where, steps, place, end)
        return f"{where}{''.join(at for at, _ in steps)}: {self.reason}"


def _circle(where: str, steps: list[tuple[str, object]], start: int, end: int) -> str:
    head = where + "".join(at for at, _ in steps[:start])
    path = where + "".join(at for at, _ in steps[:end])
    return f"{path}: refers back to {head}, and JSON has no circular references; pass ids instead of objects"


def too_deep() -> Refused:
    """Refuse a container that is too far down; `Refused.message` tells a circle from mere depth."""
    reason = f"nested deeper than {DEPTH_MAX} levels; flatten it, or store it elsewhere and pass a reference"
    return Refused(reason, too_deep=True)


def key_step(key: object) -> str:
    """Return how a path shows *key*: ``.name`` where that reads well, else quoted."""
    if isinstance(key, str):
        if key.isidentifier():
            return f".{key}"
        shown = key if len(key) <= _KEY_SHOWN_MAX else key[: _KEY_SHOWN_MAX - 3] + "..."
        return f"[{json.dumps(shown)}]"
    if type(key) is int:
        return f"[{key}]"
    return f"[{type(key).__name__}]"


def not_data(value: object) -> Refused:
    """Refuse an object of a kind that is not data, saying what to pass instead."""
    return Refused(f"{_what(value)}; {_instead(value)}")


def _what(value: object) -> str:
    match value:
        case type():
            return f"the class {value.__name__} is not data"
        case BaseException():
            return f"the exception {type(value).__name__} is not data"
        case types.FunctionType() | types.BuiltinFunctionType() | types.MethodType():
            return f"the function {value.__name__} is not data"
        case types.CoroutineType():
            return f"the coroutine of {value.__name__}() is not data"
        case io.IOBase():
            return "an open file is not data"
        case types.GeneratorType() | types.AsyncGeneratorType():
            return f"the generator {value.__name__} is not data"
        case _:
            return f"{type(value).__module__}.{type(value).__qualname__} is not a payload type"


def _instead(value: object) -> str:
    if hasattr(type(value), "__await__"):
        return "did you forget to await it?"
    match value:
        case type():
            return "pass an instance of it, or its name"
        case BaseException():
            return "raise it, or pass str() of it"
        case io.IOBase():
            return "pass its path or its contents"
        case types.GeneratorType() | types.AsyncGeneratorType():
            return "pass a list of what it yields"
        case pathlib.PurePath():
            return "pass str() of it"
        case _ if callable(value):
            return "pass what it returns, or a name to look it up by"
        case _:
            return "make it a dataclass, a msgspec.Struct or a pydantic model, or pass plain JSON"
