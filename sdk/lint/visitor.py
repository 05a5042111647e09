"""The walk over a workflow's source that makes the findings."""

from __future__ import annotations

import ast
import asyncio
import pathlib
import random
from collections.abc import Callable
from typing import Final

from tidewheel.sdk.definitions import definition_of
from tidewheel.sdk.lint import rules
from tidewheel.sdk.lint.names import Meaning, Names
from tidewheel.sdk.lint.report import Finding, Report, shown
from tidewheel.sdk.lint.rules import Rule
from tidewheel.sdk.lint.shape import (
    context_name,
    durable,
    exempt_functions,
    is_set,
    join_sets,
    passed_function,
    path_names,
    swallows,
)
from tidewheel.sdk.source import FunctionSource, function_source, plain_function

_ORIGINALS: Final = frozenset({"asyncio.as_completed", "asyncio.wait"})
_SHARED: Final = (
    asyncio.Lock,
    asyncio.Event,
    asyncio.Condition,
    asyncio.Semaphore,
    asyncio.Queue,
    asyncio.Barrier,
    random.Random,
)


def lint(fn: Callable[..., object]) -> list[Finding]:
    """Return what in the workflow *fn* may not replay, in source order; nothing without source."""
    function = plain_function(fn)
    source = function_source(function) if function is not None else None
    if function is None or source is None:
        return []
    visitor = _Visitor(source, Names(function))
    visitor.inside(source.node)
    return visitor.report.findings()


class _Visitor(ast.NodeVisitor):
    """Walks one workflow, reporting as it goes."""

    def __init__(self, source: FunctionSource, names: Names) -> None:
        self.report = Report(source)
        self._names = names
        self._ctx = context_name(source.node)
        self._join_sets = join_sets(source.node, self._ctx)
        self._exempt = exempt_functions(source.node, self._ctx)
        self._paths: frozenset[str] = frozenset()
        names.enter(source.node)
        self._paths = path_names(source.node, self._is_path)
        names.leave()

    # Functions: what is inside has names of its own; annotations never run.

    def inside(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        """Look at the body of *node*."""
        self._names.enter(node)
        for statement in node.body if isinstance(node.body, list) else [node.body]:
            self.visit(statement)
        self._names.leave()

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Look into a function defined here, unless it runs outside replay."""
        if node in self._exempt:
            return
        for expression in [*node.decorator_list, *node.args.defaults, *node.args.kw_defaults]:
            if expression is not None:
                self.visit(expression)
        self.inside(node)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - ast's name

    def visit_Lambda(self, node: ast.Lambda) -> None:
        """Look into a lambda; those passed to ``ctx.run`` are never visited."""
        self.inside(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Look at the value only."""
        if node.value is not None:
            self.visit(node.value)

    # Names: what they mean decides.

    def visit_Name(self, node: ast.Name) -> None:
        """Report a name that means something a workflow must not use."""
        meaning = self._names.meaning(node)
        if meaning is not None and not _ORIGINALS.isdisjoint(meaning.names):
            original = meaning.names[0].rpartition(".")[2]
            self.report.add(node, rules.ASYNCIO_ORIGINAL, original)
        else:
            self._check_mention(node, meaning)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Report a dotted name that means such a thing, else look at its parts."""
        if not self._check_mention(node, self._names.meaning(node)):
            self.generic_visit(node)

    def _check_mention(self, node: ast.expr, meaning: Meaning | None) -> bool:
        if meaning is None:
            return False
        rule = self._rule(meaning, called=False)
        if rule is None and isinstance(meaning.value, _SHARED):
            rule = rules.SHARED
        if rule is not None:
            self.report.add(node, rule, shown(node))
        return rule is not None

    def visit_Call(self, node: ast.Call) -> None:
        """Report a call that a workflow must not make; pass over what ``ctx.run`` is given to run."""
        rule = self._rule_of_call(node)
        if rule is not None:
            self.report.add(node, rule, shown(node.func) + ("" if rule is rules.CALLED else "()"))
        else:
            self.visit(node.func)
        passed = passed_function(node, self._ctx)
        for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
            if argument is passed:
                if isinstance(passed, ast.Call):  # partial(fn, ...): its own arguments are evaluated here
                    for inner in [*passed.args[1:], *(keyword.value for keyword in passed.keywords)]:
                        self.visit(inner)
            else:
                self.visit(argument)

    def _rule_of_call(self, node: ast.Call) -> Rule | None:
        if isinstance(node.func, ast.Attribute):
            if node.func.attr in rules.METHODS:
                return rules.METHODS[node.func.attr]
            if node.func.attr in rules.PATH_METHODS and self._is_path(node.func.value):
                return rules.FILE
        meaning = self._names.meaning(node.func)
        if meaning is None:
            return None
        if definition_of(meaning.value) is not None:
            return rules.CALLED
        if "random.Random" in meaning.names and (node.args or node.keywords):
            return None  # seeded
        return self._rule(meaning, called=True)

    def _rule(self, meaning: Meaning, *, called: bool) -> Rule | None:
        if isinstance(meaning.value, type) and issubclass(meaning.value, BaseException):
            return None
        found = (rules.rule_for(name, called=called) for name in meaning.names)
        return next((rule for rule in found if rule is not None), None)

    def _is_path(self, node: ast.expr) -> bool:
        match node:
            case ast.Call():
                meaning = self._names.meaning(node.func)
                value = meaning.value if meaning is not None else None
                return isinstance(value, type) and issubclass(value, pathlib.Path)
            case ast.BinOp(op=ast.Div()):
                return self._is_path(node.left)
            case ast.Attribute(attr="parent"):
                return self._is_path(node.value)
            case ast.Name() if node.id in self._paths:
                return True
            case _:
                meaning = self._names.meaning(node)
                value = meaning.value if meaning is not None else None
                return isinstance(value, pathlib.Path) or (
                    isinstance(value, type) and issubclass(value, pathlib.Path)
                )

    # Shapes: what the code around a durable call does.

    def visit_Expr(self, node: ast.Expr) -> None:
        """Report a durable call whose result is dropped."""
        match node.value:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=on), attr=verb)) if (
                on == self._ctx and verb in rules.AWAITED_VERBS
            ) or (on in self._join_sets and verb == "next"):
                self.report.add(node.value, rules.NOT_AWAITED, f"{on}.{verb}()")
            case _:
                pass
        self.generic_visit(node)

    def visit_Try(self, node: ast.Try | ast.TryStar) -> None:
        """Report handlers that catch the end of the run and keep it."""
        for handler in node.handlers:
            if swallows(node, handler, self._means_everything):
                what = "`except:`" if handler.type is None else f"`except {shown(handler.type)}`"
                self.report.add(handler, rules.SWALLOWS, what)
        self.generic_visit(node)

    visit_TryStar = visit_Try  # noqa: N815 - ast's name

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        """Look at the body only: naming an exception class does nothing."""
        for statement in node.body:
            self.visit(statement)

    def _means_everything(self, node: ast.expr) -> bool:
        meaning = self._names.meaning(node)
        return meaning is not None and meaning.value is BaseException

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        """Report durable calls made in the order of a set."""
        if durable(node.body, self._ctx):
            self._check_order(node.iter)
        self.generic_visit(node)

    visit_AsyncFor = visit_For  # noqa: N815 - ast's name

    def visit_Starred(self, node: ast.Starred) -> None:
        """Report a set of durable calls that is spread into arguments."""
        if durable([node.value], self._ctx):
            self._check_order(node.value)
        self.generic_visit(node)

    def generic_visit(self, node: ast.AST) -> None:
        """Look at everything else; comprehensions are loops too."""
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)) and durable(
            [node], self._ctx
        ):
            for generator in node.generators:
                self._check_order(generator.iter)
        super().generic_visit(node)

    def _check_order(self, node: ast.expr) -> None:
        if is_set(node, self._names):
            self.report.add(node, rules.SET_ORDER, shown(node))
