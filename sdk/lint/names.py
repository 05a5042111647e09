"""Which object a name in a function means, without running the function.

A name is looked up as Python would: the scopes of the source, then the closure, the
module and the builtins. Attributes are followed only through modules and classes,
and only in their dictionaries: no property, descriptor or lazy import is triggered.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import inspect
import os
import random
import sys
import types
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from tidewheel.sdk.source import closure_values

Scope: TypeAlias = dict[str, "Meaning | None"]

#: Modules in C that a public one takes its functions from.
_PUBLIC: Final = {
    "_io": "builtins",
    "_socket": "socket",
    "_sqlite3": "sqlite3",
    "_thread": "threading",
    "_random": "random",
    "nt": "os",
    "posix": "os",
    "pathlib._local": "pathlib",
}
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_NOTHING: Final = object()


@dataclasses.dataclass(frozen=True, slots=True)
class Meaning:
    """What an expression stands for: the names it is known by, and the object if it is loaded."""

    names: tuple[str, ...]
    value: object = _NOTHING

    @property
    def known(self) -> bool:
        """Whether the object itself was found."""
        return self.value is not _NOTHING


class Names:
    """The names of one function, and of the functions inside it as they are entered."""

    def __init__(self, function: types.FunctionType) -> None:
        self._globals = function.__globals__
        self._closure = closure_values(function)
        self._scopes: list[Scope] = []

    def enter(self, node: ast.AST) -> None:
        """Begin looking at the inside of the function *node*."""
        self._scopes.append(bindings(node))

    def leave(self) -> None:
        """End looking at it."""
        self._scopes.pop()

    def meaning(self, node: ast.AST) -> Meaning | None:
        """Return what the name or dotted name *node* means; None for a local value."""
        match node:
            case ast.Name():
                return self._name(node.id)
            case ast.Attribute():
                base = self.meaning(node.value)
                return _attribute(base, node.attr) if base is not None else None
            case _:
                return None

    def _name(self, name: str) -> Meaning | None:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        for names in (self._closure, self._globals, vars(builtins)):
            if name in names:
                return _meaning(names[name])
        return None


def bindings(node: ast.AST) -> Scope:
    """Return the names that the function *node* binds itself; imports with what they mean."""
    scope: Scope = {}
    outer: set[str] = set()
    for inner in _own_nodes(node):
        match inner:
            case ast.Name(ctx=ast.Store() | ast.Del()):
                scope[inner.id] = None
            case ast.arg():
                scope[inner.arg] = None
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                scope[inner.name] = None
            case ast.ExceptHandler(name=str() as name) | ast.MatchAs(name=str() as name):
                scope[name] = None
            case ast.MatchStar(name=str() as name) | ast.MatchMapping(rest=str() as name):
                scope[name] = None
            case ast.Global() | ast.Nonlocal():
                outer.update(inner.names)
            case ast.Import() | ast.ImportFrom():
                scope.update(_imports(inner))
            case _:
                pass
    return {name: meaning for name, meaning in scope.items() if name not in outer}


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Everything in the function *node* but the insides of functions and classes in it."""
    todo: list[ast.AST] = []
    if isinstance(node, _FUNCTIONS):
        body = node.body if isinstance(node.body, list) else [node.body]
        todo = [*ast.walk(node.args), *body]
    while todo:
        inner = todo.pop()
        yield inner
        if not isinstance(inner, (*_FUNCTIONS, ast.ClassDef, ast.arguments, ast.arg)):
            todo.extend(ast.iter_child_nodes(inner))


def _imports(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Meaning | None]]:
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            module = _loaded(node.module or "")
            meaning = _attribute(module, alias.name) if module is not None and not node.level else None
            yield alias.asname or alias.name, meaning
        elif alias.asname is not None:
            yield alias.asname, _loaded(alias.name)
        else:
            top = alias.name.partition(".")[0]
            yield top, _loaded(top)


def _loaded(module: str) -> Meaning | None:
    return Meaning((module,), sys.modules[module]) if module in sys.modules else Meaning((module,))


def _attribute(base: Meaning, name: str) -> Meaning:
    """Follow *name* into a module or class; elsewhere only the spelling is known."""
    spelled = tuple(f"{known}.{name}" for known in base.names)
    if isinstance(base.value, types.ModuleType):
        found = vars(base.value).get(name, _NOTHING)
    elif isinstance(base.value, type):
        found = inspect.getattr_static(base.value, name, _NOTHING)
        inherited = [f"{_public(cls)}.{name}" for cls in base.value.__mro__ if name in vars(cls)]
        return Meaning((*spelled, *inherited), found)
    else:
        return Meaning(spelled)
    if found is _NOTHING:
        return Meaning(spelled)
    return Meaning((*_meaning(found).names, *spelled), found)


def _meaning(value: Any) -> Meaning:
    if value is os.environ:
        return Meaning(("os.environ",), value)
    if isinstance(value, types.ModuleType):
        return Meaning((value.__name__,), value)
    if isinstance(value, (type, types.FunctionType)):
        return Meaning((_public(value),), value)
    owner = getattr(value, "__self__", None) if isinstance(value, _BOUND) else None
    if isinstance(owner, types.ModuleType):
        return Meaning((f"{_PUBLIC.get(owner.__name__, owner.__name__)}.{value.__name__}",), value)
    if isinstance(owner, type):
        return Meaning((f"{_public(owner)}.{value.__name__}",), value)
    if isinstance(owner, random.Random):
        return Meaning((f"random.{value.__name__}",), value)
    if isinstance(value, types.MethodType):
        return Meaning((_public(value.__func__),), value)
    return Meaning((), value)


_BOUND: Final = (types.BuiltinFunctionType, types.MethodType)


def _public(value: Any) -> str:
    module = getattr(value, "__module__", None) or ""
    name = getattr(value, "__qualname__", "")
    if module.startswith("asyncio."):
        module = "asyncio"
    return f"{_PUBLIC.get(module, module)}.{name}"
