"""The digest of a component: which code a run was started with.

Two functions have one digest if their syntax trees agree once all that cannot
change what they do is left out: decorators of the function itself, docstrings,
comments, layout. It covers the function's own code, not what it calls, and is the
same under Python 3.11 to 3.13. It is reported and pinned by, never executed.
"""

from __future__ import annotations

import ast
import hashlib
import types
from collections.abc import Callable, Iterator
from typing import Final

from tidewheel.sdk.source import FunctionNode, function_source, plain_function

#: Of a digest, so much is shown to people.
DIGEST_SHOWN: Final = 12
#: Not code: where a node is, what a type checker reads, and the ``u`` of ``u"..."``.
_LEFT_OUT: Final = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
_DOCUMENTED: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)


def component_digest(fn: Callable[..., object], version: str) -> str:
    """Return the SHA-256, in hex, of the normalised code of *fn* and its *version* label.

    Without source (a REPL, a ``.pyc`` alone, code made by ``exec``) the code object is
    digested instead. Bytecode differs between Python versions, and so do those digests:
    give such functions a ``version`` and do not pin them by digest.
    """
    function = plain_function(fn)
    if function is None:
        name = getattr(fn, "__qualname__", type(fn).__qualname__)
        form = f"name {getattr(fn, '__module__', None)}.{name}"
    elif (source := function_source(function)) is not None:
        form = f"tree {normal_form(source.node)}"
    else:
        form = f"code {_code_form(function.__code__, function.__doc__)}"
    return hashlib.sha256(f"{version!a} {form}".encode("ascii")).hexdigest()


def normal_form(function: FunctionNode) -> str:
    """Return the syntax tree of *function* as text that only a change of code changes."""
    return "".join(_tree(function, outermost=True))


def _tree(node: object, *, outermost: bool = False) -> Iterator[str]:
    match node:
        case ast.Constant():
            yield _constant(node.value)
        case ast.AST():
            yield f"{type(node).__name__}("
            # By name: the order of a node's fields is Python's to change.
            for name, value in sorted(_fields(node, outermost=outermost)):
                yield f"{name}="
                yield from _tree(value)
                yield ","
            yield ")"
        case list():
            yield "["
            for item in node:
                yield from _tree(item)
                yield ","
            yield "]"
        case _:
            yield _constant(node)


def _fields(node: ast.AST, *, outermost: bool) -> Iterator[tuple[str, object]]:
    """The fields of *node* that are code; empty ones are skipped because new Pythons add such."""
    for name, value in ast.iter_fields(node):
        if name in _LEFT_OUT or value is None or value == []:
            continue
        if name == "decorator_list" and outermost:
            continue
        if name == "body" and isinstance(node, _DOCUMENTED):
            yield name, _without_docstring(value)
        elif name == "values" and isinstance(node, ast.JoinedStr):
            yield name, _joined(value)
        elif name == "format_spec" and isinstance(value, ast.JoinedStr) and not value.values:
            continue  # f"{x:}" has an empty specification or none, depending on the Python
        else:
            yield name, value


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    match body:
        case [ast.Expr(value=ast.Constant(value=str())), *rest]:
            return rest
        case _:
            return body


def _joined(values: list[ast.expr]) -> list[ast.expr]:
    """Put neighbouring texts of an f-string together: Pythons differ in where they cut."""
    out: list[ast.expr] = []
    for value in values:
        match out[-1:], value:
            case [ast.Constant(value=str() as before)], ast.Constant(value=str() as more):
                out[-1] = ast.Constant(before + more)
            case _:
                out.append(value)
    return [value for value in out if not (isinstance(value, ast.Constant) and value.value == "")]


def _constant(value: object) -> str:
    if type(value) is int:
        return hex(value)  # decimal text of very long integers is refused by Python
    return ascii(value)  # repr() of text depends on the Unicode tables of the Python


def _code_form(code: types.CodeType, doc: str | None) -> str:
    constants = [
        _code_form(value, None) if isinstance(value, types.CodeType) else _code_constant(value)
        for value in code.co_consts
        if not (doc is not None and value is code.co_consts[0] and value == doc)
    ]
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    return f"({code.co_name!a} {code.co_flags} {names!a} {constants!a} {code.co_code.hex()})"


def _code_constant(value: object) -> str:
    if isinstance(value, frozenset):
        return f"frozenset{sorted(_code_constant(item) for item in value)!a}"
    return f"{type(value).__name__} {_constant(value)}"
