"""The determinism check: what it finds in a workflow, and what it leaves alone."""

from __future__ import annotations

import itertools
import linecache
import textwrap
from typing import Any

import pytest

from tidewheel import App, Context
from tidewheel.sdk.lint import Finding, lint

_counter = itertools.count()

HEADER = """
import asyncio
import concurrent.futures
import datetime
import datetime as d
import functools
import multiprocessing
import os
import pathlib
import random
import secrets
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
import uuid
from asyncio import as_completed, gather, wait as wait_for_some
from concurrent.futures import ThreadPoolExecutor
from os import environ, urandom
from pathlib import Path
from random import Random, choice
from secrets import choice as pick, compare_digest
from socket import gethostbyname
from time import time as t
from uuid import uuid4

LOCK = asyncio.Lock()
RNG = random.Random(1)
ROOT = Path("/")
now = datetime.datetime.now


class app:
    task = staticmethod(lambda fn: fn)


def helper(x): ...
"""


def findings(body: str, *, signature: str = "ctx, x=None", before: str = "") -> list[Finding]:
    """Lint a workflow with this *body*."""
    flow = f"{before}\nasync def flow({signature}):\n{textwrap.indent(textwrap.dedent(body), '    ')}\n"
    source = HEADER + flow
    name = f"<lint test {next(_counter)}>"
    names: dict[str, Any] = {}
    exec(compile(source, name, "exec"), names)  # noqa: S102 - the test's own text
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    return lint(names["flow"])


FOUND = [
    ("clock", "return datetime.datetime.now(d.UTC)"),
    ("clock", "return d.datetime.utcnow()"),
    ("clock", "return d.datetime.today()"),
    ("clock", "return d.date.today()"),
    ("clock", "return now()"),
    ("clock", "return t()"),
    ("clock", "return time.monotonic()"),
    ("clock", "return sorted(x, key=lambda _: time.perf_counter())"),
    ("clock", "clock = time.time_ns"),
    ("clock", "import time as inner\nreturn inner.time()"),
    ("clock", "from time import monotonic as inner\nreturn inner()"),
    ("clock", "from datetime import datetime\nreturn datetime.now()"),
    ("clock", "def inner():\n    return time.time()\nreturn inner()"),
    ("clock", "return await ctx.run('key', helper, time.time())"),
    ("clock", "return await ctx.run('key', functools.partial(helper, time.time()))"),
    ("clock", "def fn():\n    return time.time()\nawait ctx.run('key', fn)\nreturn fn()"),
    ("sleep", "time.sleep(1)"),
    ("random", "return random.random()"),
    ("random", "return choice(x)"),
    ("random", "return Random()"),
    ("random", "return random.SystemRandom(1)"),
    ("random", "random.shuffle(x)"),
    ("random", "return secrets.token_hex()"),
    ("random", "return pick(x)"),
    ("random", "return urandom(4)"),
    ("random", "return os.urandom(4)"),
    ("uuid", "return uuid.uuid1()"),
    ("uuid", "return uuid4()"),
    ("uuid", "return [make() for make in [uuid4]]"),
    ("environment", "return os.getenv('A')"),
    ("environment", "return os.environ['A']"),
    ("environment", "return os.environ.get('A')"),
    ("environment", "return 'A' in environ"),
    ("file-io", "return open('f')"),
    ("file-io", "with open('f') as f:\n    return f.read()"),
    ("file-io", "return input()"),
    ("file-io", "return Path('f').read_text()"),
    ("file-io", "return (Path('f') / 'g').parent.exists()"),
    ("file-io", "p = Path('f')\nreturn p.read_bytes()"),
    ("file-io", "return ROOT.is_dir()"),
    ("file-io", "return pathlib.Path.cwd()"),
    ("file-io", "return os.listdir('.')"),
    ("network", "return urllib.request.urlopen('http://x')"),
    ("network", "return socket.create_connection(x)"),
    ("network", "return gethostbyname('x')"),
    ("network", "import requests\nreturn requests.get('http://x')"),
    ("network", "import httpx as h\nasync with h.AsyncClient() as client: ..."),
    ("network", "from requests import get\nreturn get('http://x')"),
    ("subprocess", "return subprocess.run(['ls'])"),
    ("subprocess", "return os.system('ls')"),
    ("thread", "threading.Thread(target=x).start()"),
    ("thread", "return multiprocessing.Pool()"),
    ("thread", "return concurrent.futures.ProcessPoolExecutor()"),
    ("thread", "return ThreadPoolExecutor()"),
    ("asyncio-io", "return await asyncio.to_thread(x)"),
    ("asyncio-io", "return await asyncio.get_running_loop().run_in_executor(None, x)"),
    ("asyncio-io", "return await asyncio.create_subprocess_exec('ls')"),
    ("asyncio-io", "return await asyncio.open_connection('x', 1)"),
    ("asyncio-io", "return asyncio.run(x)"),
    ("asyncio-original", "for f in as_completed(x):\n    await f"),
    ("asyncio-original", "return await wait_for_some(x)"),
    ("shared-primitive", "async with LOCK: ..."),
    ("shared-primitive", "return RNG.random()"),
    ("set-order", "for i in {x, 1}:\n    await ctx.invoke(helper, i)"),
    ("set-order", "for i in set(x):\n    ctx.start(helper, i)"),
    ("set-order", "for i in set(x) | frozenset(x):\n    await i"),
    ("set-order", "return await gather(*[ctx.invoke(helper, i) for i in frozenset(x)])"),
    ("set-order", "return await gather(*{ctx.invoke(helper, i) for i in x})"),
    ("swallows-end", "try:\n    await ctx.sleep(1)\nexcept:\n    pass"),
    ("swallows-end", "try:\n    await ctx.sleep(1)\nexcept BaseException as e:\n    return repr(e)"),
    ("swallows-end", "try:\n    async with x: ...\nexcept (ValueError, BaseException):\n    pass"),
    ("not-awaited", "ctx.sleep(5)"),
    ("not-awaited", "ctx.invoke(helper, x)"),
    ("not-awaited", "ctx.run('key', helper)"),
    ("not-awaited", "async with ctx.join_set() as js:\n    js.next()"),
]


@pytest.mark.parametrize(("rule", "body"), FOUND, ids=[f"{r}-{b.splitlines()[-1].strip()}" for r, b in FOUND])
def test_what_does_not_replay_is_found(rule: str, body: str) -> None:
    """Each is found once, by what the name means and not by how it is spelled."""
    assert [finding.rule for finding in findings(body)] == [rule]


CLEAN = [
    "return ctx.now(), ctx.random(), ctx.uuid()",
    "await ctx.sleep(5)",
    "pending = ctx.sleep(5)\nawait pending",
    "ctx.start(helper, x)",
    "async with ctx.join_set() as js:\n    js.submit(helper, x)\n    return await js.next()",
    "ctx.continue_as_new(x)",
    "ctx.state['k'] = 1",
    "return await ctx.run('key', lambda: time.time())",
    "return await ctx.run('key', time.time)",
    "return await ctx.run('key', functools.partial(open, 'f'))",
    "def fn():\n    return open('f')\nreturn await ctx.run('key', fn)",
    "@app.task\ndef fn():\n    return time.time()\nreturn await ctx.invoke(fn)",
    "return random.Random(x).random()",
    "rng = Random(x)\nreturn rng.random()",
    "return compare_digest('a', 'b')",
    "return datetime.datetime(2024, 1, 1), d.timedelta(1)",
    "return uuid.uuid5(uuid.NAMESPACE_DNS, 'x')",
    "return urllib.parse.urlsplit('x')",
    "return Path('f') / 'g'",
    "return socket.AF_INET",
    "time = x\nreturn time.time()",
    "def inner(time):\n    return time.time()\nreturn inner(x)",
    "stamp: time.time = None",
    "try:\n    await ctx.invoke(helper)\nexcept subprocess.CalledProcessError:\n    pass",
    "raise subprocess.CalledProcessError(1, 'x')",
    "lock = asyncio.Lock()\nasync with lock: ...",
    "await asyncio.sleep(1)\nawait asyncio.wait([x])\nasyncio.as_completed([x])\nawait gather(x)",
    "for i in sorted({x, 1}):\n    await ctx.invoke(helper, i)",
    "for i in {x, 1}:\n    print(i)",
    "return x in {1, 2}",
    "try:\n    await ctx.sleep(1)\nexcept BaseException:\n    print()\n    raise",
    "try:\n    await ctx.sleep(1)\nexcept BaseException as e:\n    raise e",
    "try:\n    await ctx.sleep(1)\nexcept Exception:\n    pass",
    "try:\n    helper(x)\nexcept:\n    pass",
    "unknown_name.time()",
]


@pytest.mark.parametrize("body", CLEAN, ids=[body.splitlines()[0] for body in CLEAN])
def test_what_replays_is_left_alone(body: str) -> None:
    """A check that cries wolf is switched off."""
    assert findings(body) == []


def test_a_finding_says_where_and_what_to_write_instead() -> None:
    """Line and column count from 1, in characters, as editors do."""
    (finding,) = findings('return "é", time.time()')

    assert finding.line == len(HEADER.splitlines()) + 3
    assert finding.column == len('    return "é", ') + 1
    assert finding.level == "error"
    assert finding.message == "time.time() reads the clock, which differs on replay: use ctx.now()"
    assert finding.hint == "use ctx.now()"
    assert str(finding).endswith(f":{finding.line}:{finding.column}: error[clock] {finding.message}")


@pytest.mark.parametrize(
    ("body", "alternative"),
    [
        ("time.sleep(1)", "await ctx.sleep("),
        ("random.random()", "ctx.random()"),
        ("uuid4()", "ctx.uuid()"),
        ("open('f')", "ctx.run(key, fn)"),
        ("subprocess.run('x')", "a task via ctx.invoke"),
        ("as_completed(x)", "write `import asyncio` and `asyncio.as_completed`"),
        ("wait_for_some(x)", "`asyncio.wait`"),
    ],
)
def test_every_message_names_the_durable_alternative(body: str, alternative: str) -> None:
    """The reader should not have to look it up."""
    assert alternative in findings(body)[0].message


def test_findings_come_in_source_order() -> None:
    """As a compiler prints them."""
    found = findings("b = uuid4()\na = time.time(), random.random()")

    assert [finding.rule for finding in found] == ["uuid", "clock", "random"]


def test_a_comment_silences_its_line() -> None:
    """For all rules, or for those it names."""
    assert findings("time.sleep(1)  # tidewheel: ignore") == []
    assert findings("time.sleep(1)  # tidewheel: ignore[sleep, clock]") == []
    assert findings("time.sleep(\n    1,\n)  # tidewheel: ignore[sleep]") == []
    assert [f.rule for f in findings("time.sleep(1)  # tidewheel: ignore[clock]")] == ["sleep"]
    assert [f.rule for f in findings("# tidewheel: ignore\ntime.sleep(1)")] == ["sleep"]


def test_the_context_may_have_any_name() -> None:
    """It is the parameter annotated as one, else the first."""
    assert [f.rule for f in findings("c.sleep(1)", signature="c")] == ["not-awaited"]
    assert [f.rule for f in findings("c.sleep(1)", signature="self, c: 'Context'")] == ["not-awaited"]
    assert findings("c.sleep(1)", signature="") == []


def test_names_are_found_through_closures() -> None:
    """A workflow defined in a function sees that function's names."""
    from time import time as stamp

    async def flow(ctx: object) -> float:
        return stamp()

    assert [finding.rule for finding in lint(flow)] == ["clock"]


def test_a_function_without_source_has_no_findings() -> None:
    """Nothing can be said about it; the runtime guards remain."""
    names: dict[str, Any] = {}
    exec("import time\nasync def flow(ctx): time.sleep(1)", names)  # noqa: S102 - the test's own text

    assert lint(names["flow"]) == []
    assert lint(len) == []


def test_a_task_called_directly_is_an_error() -> None:
    """A plain call of a step is not journaled; the finding names ``ctx.invoke``."""
    app = App("direct")

    @app.task
    async def pay(amount: int) -> int:
        return amount

    async def checkout(ctx: Context) -> int:
        return await pay(5) + await ctx.invoke(pay, 5)

    (finding,) = lint(checkout)

    assert (finding.rule, finding.level) == ("called-directly", "error")
    assert "ctx.invoke(pay, ...)" in finding.message
