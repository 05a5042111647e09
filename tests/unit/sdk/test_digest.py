"""Component digests: they change with the code and with nothing else."""

from __future__ import annotations

import ast
import functools
import itertools
import linecache
import types
from collections.abc import Callable
from typing import Any

import pytest

from tidewheel.sdk.digest import component_digest, normal_form

_counter = itertools.count()

PINNED = "a2c4861d262ed8683ada3776015177a16a0956caebdb875354dd3142f5126ae1"

BASE = """
async def flow(ctx, n):
    total = 0
    for i in range(n):
        total += await ctx.invoke("add", i, 1.5)
    return f"total {total!r:>{n}}"
"""


def made(source: str, *, stored: bool = True) -> Callable[..., object]:
    """Return the function ``flow`` that *source* defines, with or without source to find."""
    name = f"<digest test {next(_counter)}>"
    names: dict[str, Any] = {"decorated": lambda *_: lambda fn: fn}
    exec(compile(source, name, "exec"), names)  # noqa: S102 - the test's own text
    if stored:
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    flow: Callable[..., object] = names["flow"]
    return flow


@pytest.mark.parametrize(
    "source",
    [
        BASE.replace("async def", "@decorated(1)\n@decorated(2)\nasync def"),
        BASE.replace("total = 0", '"""Say what it does."""\n    total = 0  # and why'),
        BASE.replace("total = 0", "total = (\n        0x0\n    )"),
        BASE.replace("total = 0", "total = 0  # type: int"),
        BASE.replace('"add"', 'u"a" "dd"'),
        BASE.replace('"add"', "'add'"),
        BASE.replace('f"total {total', 'f"tot" f"al {total'),
        "x = 1\n\n\n" + BASE,
        f"if True:\n{BASE}".replace("\n", "\n    "),
    ],
)
def test_what_does_not_change_the_code_does_not_change_the_digest(source: str) -> None:
    """Decorators, docstrings, comments, layout and place are left out."""
    assert component_digest(made(source), "1") == component_digest(made(BASE), "1")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("total = 0", "total = 1"),
        ("total = 0", "total = 0.0"),
        ("total = 0", "total = False"),
        ("1.5", "1.25"),
        ('"add"', 'b"add"'),
        ("await ctx", "ctx"),
        ("ctx, n", "ctx, n=1"),
        ("!r", "!s"),
        ("range(n)", "range(n, n)"),
        ("total = 0", '"""Doc."""\n    @decorated\n    def inner(): ...\n    total = 0'),
    ],
)
def test_a_change_of_code_changes_the_digest(old: str, new: str) -> None:
    """Also one that Python's == would not see."""
    assert component_digest(made(BASE.replace(old, new)), "1") != component_digest(made(BASE), "1")


def test_the_version_label_is_part_of_the_digest() -> None:
    """The same code under another label is another component."""
    flow = made(BASE)

    assert component_digest(flow, "1") != component_digest(flow, "2")
    assert component_digest(flow, "1") == component_digest(made(BASE), "1")


def test_decorators_inside_the_function_count() -> None:
    """They change what the function does; only its own are left out."""
    plain = BASE.replace("total = 0", "def inner(): ...\n    total = 0")

    wrapped = plain.replace("def inner", "@decorated\n    def inner")

    assert component_digest(made(wrapped), "") != component_digest(made(plain), "")


def test_the_digest_of_known_code_never_changes() -> None:
    """Runs in stores carry it: every Python that is supported gives this very value."""
    source = '''
def flow(ctx, a: "int", /, b=-0.0, *c, d: list[int] = [1, ...], **e) -> None:
    """Gone."""
    class Inner(dict if a else list, metaclass=type):
        """Gone too."""
    match a:
        case {"k": [1, *_], **rest} if rest: pass
    with (open("x") as f, f): ...
    try: x = lambda: (yield)
    except* ValueError as error: raise error from None
    return f"é{a!r:>{b}}" f"{a=}" "tail {{}}" f"{a:}{{}}" + "\\u1c89" + b"\\xff".hex(), 10 ** 3j, not a
'''
    node = ast.parse(source).body[0]
    assert isinstance(node, ast.FunctionDef)

    assert "Gone" not in normal_form(node)
    assert component_digest(made(source), "7") == PINNED


def test_wrapped_and_partial_functions_have_the_digest_of_the_function() -> None:
    """Wrappers are not the component."""
    flow = made(BASE)

    @functools.wraps(flow)
    def wrapper(*args: object) -> object:
        return flow(*args)

    assert component_digest(wrapper, "") == component_digest(flow, "")
    assert component_digest(functools.partial(flow, n=1), "") == component_digest(flow, "")


def test_functions_with_strings_that_span_lines_are_found() -> None:
    """Text that is indented less than the code around it does not hide the source."""

    def flow() -> str:
        return """
left"""

    def other() -> str:
        return """
right"""

    assert isinstance(flow, types.FunctionType)
    assert component_digest(flow, "") != component_digest(other, "")


def test_a_function_without_source_still_has_a_digest() -> None:
    """It is made of the code object, and of nothing that two imports would change."""
    other = BASE.replace("total = 0", "total = 7")
    with_set = BASE.replace("total = 0", "total = n in {'a', 'b', 'c'}")

    bare = component_digest(made(BASE, stored=False), "1")

    assert bare == component_digest(made("\n\n" + BASE, stored=False), "1")
    assert bare != component_digest(made(other, stored=False), "1")
    documented = [BASE.replace("total = 0", f'"{doc}"\n    total = 0') for doc in ("One.", "Two.")]
    assert len({component_digest(made(source, stored=False), "1") for source in documented}) == 1
    assert len(component_digest(made(with_set, stored=False), "1")) == 64


def test_builtins_and_callable_objects_have_a_digest() -> None:
    """Whatever can be registered can be named."""

    class Service:
        def __call__(self) -> None: ...

    assert component_digest(len, "") != component_digest(max, "")
    assert len(component_digest(Service(), "")) == 64
    assert component_digest(lambda: 1, "") != component_digest(lambda: 2, "")
