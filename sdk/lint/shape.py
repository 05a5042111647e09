"""The shapes of workflow code that `lint` looks for: pure questions about a syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from tidewheel.sdk.lint import rules

if TYPE_CHECKING:
    from tidewheel.sdk.lint.names import Names
    from tidewheel.sdk.source import FunctionNode

_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_AWAITS: Final = (ast.Await, ast.AsyncFor, ast.AsyncWith)
_SET_OPERATORS: Final = (ast.BitOr, ast.BitAnd, ast.BitXor, ast.Sub)
_SET_TYPES: Final = (set, frozenset)


def context_name(node: FunctionNode) -> str | None:
    """Return what the workflow *node* calls its context: the first parameter, after ``self``."""
    parameters = [*node.args.posonlyargs, *node.args.args]
    for parameter in parameters:
        annotation = ast.unparse(parameter.annotation) if parameter.annotation is not None else ""
        if annotation.strip("'\"").endswith("Context"):
            return parameter.arg
    names = [parameter.arg for parameter in parameters if parameter.arg not in ("self", "cls")]
    return names[0] if names else None


def join_sets(node: ast.AST, ctx: str | None) -> frozenset[str]:
    """Return the names that are bound to ``ctx.join_set()``."""
    found: set[str] = set()
    for inner in ast.walk(node):
        match inner:
            case ast.withitem(context_expr=ast.Call() as call, optional_vars=ast.Name(id=name)):
                pass
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call):
                pass
            case _:
                continue
        if _verb(call, ctx) == "join_set":
            found.add(name)
    return frozenset(found)


def path_names(node: ast.AST, is_path: Callable[[ast.expr], bool]) -> frozenset[str]:
    """Return the local names that are only ever assigned paths."""
    assigned: dict[str, bool] = {}
    for inner in ast.walk(node):
        match inner:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                assigned[name] = assigned.get(name, True) and is_path(value)
            case _:
                pass
    return frozenset(name for name, path in assigned.items() if path)


def passed_function(call: ast.Call, ctx: str | None) -> ast.expr | None:
    """Return the argument of ``ctx.run(key, fn, ...)`` that runs outside replay."""
    if _verb(call, ctx) not in rules.RUNNING_VERBS:
        return None
    candidates = [*call.args[1:2], *(keyword.value for keyword in call.keywords if keyword.arg == "fn")]
    for argument in candidates:
        match argument:
            case ast.Lambda() | ast.Name() | ast.Attribute():
                return argument
            case ast.Call(func=ast.Name(id="partial") | ast.Attribute(attr="partial"), args=[_, *_]):
                return argument
            case _:
                continue
    return None


def exempt_functions(node: ast.AST, ctx: str | None) -> frozenset[ast.AST]:
    """Return the functions inside *node* that run outside its replay.

    They are registered by a decorator, or passed to ``ctx.run`` and not called directly.
    """
    passed: set[str] = set()
    called: set[str] = set()
    for call in (inner for inner in ast.walk(node) if isinstance(inner, ast.Call)):
        if isinstance(call.func, ast.Name):
            called.add(call.func.id)
        argument = passed_function(call, ctx)
        if isinstance(argument, ast.Call):
            argument = argument.args[0]
        if isinstance(argument, ast.Name):
            passed.add(argument.id)
    return frozenset(
        inner
        for inner in ast.walk(node)
        if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef))
        and inner is not node
        and (inner.name in passed - called or _is_registered(inner))
    )


def durable(nodes: Sequence[ast.AST], ctx: str | None) -> bool:
    """Tell whether *nodes* await something or use the context."""
    return any(
        isinstance(inner, _AWAITS) or (isinstance(inner, ast.Name) and inner.id == ctx)
        for node in nodes
        for inner in ast.walk(node)
    )


def is_set(node: ast.expr, names: Names) -> bool:
    """Tell whether *node* is plainly a set: a display, a comprehension, ``set(...)`` or made of such."""
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Call():
            meaning = names.meaning(node.func)
            return meaning is not None and any(meaning.value is cls for cls in _SET_TYPES)
        case ast.BinOp() if isinstance(node.op, _SET_OPERATORS):
            return is_set(node.left, names) or is_set(node.right, names)
        case _:
            return False


def swallows(
    node: ast.Try | ast.TryStar, handler: ast.ExceptHandler, means_everything: Callable[[ast.expr], bool]
) -> bool:
    """Tell whether *handler* catches everything that an await in *node* raises, and keeps it."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    if not any(kind is None or means_everything(kind) for kind in kinds):
        return False
    if not any(isinstance(inner, _AWAITS) for inner in _own_nodes(node.body)):
        return False
    return not any(_raises_again(statement, handler.name) for statement in handler.body)


def _raises_again(statement: ast.stmt, caught: str | None) -> bool:
    match statement:
        case ast.Raise(exc=None):
            return True
        case ast.Raise(exc=ast.Name(id=name)):
            return name == caught
        case _:
            return False


def _own_nodes(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """*nodes* and what is in them, but not the insides of functions defined there."""
    todo = list(nodes)
    while todo:
        inner = todo.pop()
        yield inner
        if not isinstance(inner, _FUNCTIONS):
            todo.extend(ast.iter_child_nodes(inner))


def _verb(call: ast.Call, ctx: str | None) -> str | None:
    match call.func:
        case ast.Attribute(value=ast.Name(id=name), attr=verb) if name == ctx:
            return verb
        case _:
            return None


def _is_registered(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Tell whether *node* is decorated like ``@app.task`` or ``@app.workflow(...)``."""
    for decorator in node.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        if isinstance(target, ast.Attribute) and target.attr in ("task", "workflow"):
            return True
    return False
