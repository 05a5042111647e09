"""JSON from the command line: read as strictly as the journal writes it, refused with its position."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from tidewheel.cli.failure import Failure


def parse(text: str, option: str) -> Any:
    """Return the value that *option* was given as JSON."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as problem:
        place = f"line {problem.lineno}, " if "\n" in text else ""
        message = f"{option} is not JSON: {problem.msg} at {place}character {problem.colno}"
        raise Failure.invalid(message, _advice(text, problem.pos)) from None
    except ValueError as problem:  # a constant, or a number too long to convert
        message = f"{option} is not JSON: {problem}"
        raise Failure.invalid(message) from None


def arguments(text: str, option: str) -> list[Any]:
    """Return the list of arguments that *option* was given as JSON."""
    value = parse(text, option)
    if not isinstance(value, list):
        message = f"{option} is the list of the workflow's arguments, not {_named(value)}"
        raise Failure.invalid(message, f"one argument is a list of one: {option} '[{text.strip()[:60]}]'")
    return value


def _refuse_constant(name: str) -> NoReturn:
    message = f"{name} is no number of JSON"
    raise ValueError(message)


def _advice(text: str, position: int) -> str:
    """Show the place, and recall what shells do to quotes."""
    around = text[max(0, position - 20) : position + 20].replace("\n", " ")
    near = f"near {around!r}; " if around.strip() else ""
    return f"{near}text needs double quotes, and all of it single ones: '[\"a\", 1]'"


def _named(value: Any) -> str:
    names = {dict: "an object", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(value), "null")
