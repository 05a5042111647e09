"""A function's source as a syntax tree, and the names it sees: shared by hints, digests and checks.

The whole file is parsed and the function found in it by its line. Cutting the
function's own lines out and dedenting them fails on strings that span lines.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import types
from collections.abc import Callable
from typing import TypeAlias

FunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSource:
    """A function's file, the lines of that file, and the function's node in its tree."""

    path: str
    lines: tuple[str, ...]
    node: FunctionNode


def plain_function(fn: Callable[..., object]) -> types.FunctionType | None:
    """Return the function under wrappers, partials, methods and callable objects, if there is one."""
    inner: object = inspect.unwrap(fn)
    while isinstance(inner, functools.partial):
        inner = inspect.unwrap(inner.func)
    if not isinstance(inner, (types.FunctionType, types.MethodType)):
        inner = getattr(type(inner), "__call__", None)  # noqa: B004 - its code is wanted, not whether it is there
    if isinstance(inner, types.MethodType):
        inner = inner.__func__
    return inner if isinstance(inner, types.FunctionType) else None


def closure_values(function: types.FunctionType) -> dict[str, object]:
    """Return what *function* closes over, as far as it is assigned yet."""
    values: dict[str, object] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            values[name] = cell.cell_contents
        except ValueError:  # assigned later in the enclosing function
            continue
    return values


def function_source(function: types.FunctionType) -> FunctionSource | None:
    """Return the source of *function*, or None where it is missing or no longer matches."""
    try:
        lines = inspect.findsource(function)[0]
    except (OSError, TypeError, IndexError):
        return None
    tree = _parsed("".join(lines))
    if tree is None:
        return None
    code = function.__code__
    found = [node for node in ast.walk(tree) if _is_at(node, code.co_name, code.co_firstlineno)]
    if len(found) != 1:  # two lambdas on one line, or the file has changed since the import
        return None
    node = found[0]
    assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
    return FunctionSource(path=code.co_filename, lines=tuple(lines), node=node)


@functools.lru_cache(maxsize=16)
def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return None


def _is_at(node: ast.AST, name: str, line: int) -> bool:
    match node:
        case ast.Lambda():
            return name == "<lambda>" and node.lineno == line
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            return node.name == name and first == line
        case _:
            return False
