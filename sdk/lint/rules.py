"""What a workflow must not use, and what to use instead: the tables of `lint`.

Names are those an object was defined under, however the code spells them. A
`NAMES` entry is refused wherever it is mentioned; a `PACKAGES` entry only where
something of that package is called, so that its constants and exceptions stay
usable.
"""

from __future__ import annotations

import dataclasses
from typing import Final, Literal, TypeAlias

Level: TypeAlias = Literal["error", "warning"]


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """One kind of finding: its name, how bad it is, why, and the durable alternative."""

    name: str
    level: Level
    why: str
    hint: str


_ELSEWHERE: Final = "use a task via ctx.invoke, or ctx.run(key, fn)"

CLOCK: Final = Rule("clock", "error", "reads the clock, which differs on replay", "use ctx.now()")
SLEEP: Final = Rule("sleep", "error", "blocks the worker and is not durable", "use await ctx.sleep(seconds)")
RANDOM: Final = Rule("random", "error", "is random, and differs on replay", "use ctx.random()")
UUID: Final = Rule("uuid", "error", "makes a new id on every replay", "use ctx.uuid()")
ENVIRONMENT: Final = Rule(
    "environment",
    "error",
    "depends on the process that replays",
    "pass it as input, or read it with ctx.run(key, fn)",
)
FILE: Final = Rule("file-io", "error", "does I/O in workflow code", _ELSEWHERE)
NETWORK: Final = Rule("network", "error", "does I/O in workflow code", _ELSEWHERE)
PROCESS: Final = Rule("subprocess", "error", "starts a process", _ELSEWHERE)
THREAD: Final = Rule(
    "thread", "error", "leaves the deterministic loop", "use ctx.start, ctx.join_set() or asyncio.gather"
)
ASYNCIO_IO: Final = Rule("asyncio-io", "error", "leaves the deterministic loop", _ELSEWHERE)
ASYNCIO_ORIGINAL: Final = Rule(
    "asyncio-original",
    "error",
    "is bound to asyncio's own version, whose order differs on replay",
    "write `import asyncio` and `asyncio.{name}`",
)
SHARED: Final = Rule(
    "shared-primitive", "error", "is shared by all runs of the process", "create it inside the workflow"
)
SET_ORDER: Final = Rule(
    "set-order",
    "warning",
    "iterates a set, whose order differs between processes",
    "use sorted(...) or a list",
)
SWALLOWS: Final = Rule(
    "swallows-end",
    "warning",
    "around an await may swallow the end of the run",
    "catch Exception, or end the handler with `raise`",
)
NOT_AWAITED: Final = Rule(
    "not-awaited", "error", "is called but its result is dropped", "await it, or keep it and await it later"
)
CALLED: Final = Rule(
    "called-directly",
    "error",
    "is a step, and a plain call of it is not journaled: it happens again on every replay",
    "use await ctx.invoke({name}, ...)",
)

_BY_RULE: Final[dict[Rule, str]] = {
    CLOCK: """
        datetime.datetime.now datetime.datetime.utcnow datetime.datetime.today datetime.date.today
        time.time time.time_ns time.monotonic time.monotonic_ns time.perf_counter time.perf_counter_ns
        time.process_time time.process_time_ns
    """,
    SLEEP: "time.sleep",
    UUID: "uuid.uuid1 uuid.uuid4",
    RANDOM: "os.urandom os.getrandom",
    ENVIRONMENT: "os.getenv os.getenvb os.environ os.environb",
    FILE: """
        builtins.open builtins.input io.open os.open os.read os.write os.listdir os.scandir os.walk os.stat
        os.mkdir os.makedirs os.remove os.unlink os.rename os.replace os.rmdir
    """,
    PROCESS: "os.system os.popen os.fork os.posix_spawn",
    ASYNCIO_IO: """
        asyncio.to_thread asyncio.run asyncio.create_subprocess_exec asyncio.create_subprocess_shell
        asyncio.open_connection asyncio.open_unix_connection asyncio.start_server asyncio.start_unix_server
    """,
}
NAMES: Final[dict[str, Rule]] = {name: rule for rule, names in _BY_RULE.items() for name in names.split()}

PACKAGES: Final[dict[str, Rule]] = {
    "random": RANDOM,
    "secrets": RANDOM,
    "requests": NETWORK,
    "httpx": NETWORK,
    "aiohttp": NETWORK,
    "urllib.request": NETWORK,
    "urllib3": NETWORK,
    "http.client": NETWORK,
    "smtplib": NETWORK,
    "socket": NETWORK,
    "sqlite3": NETWORK,
    "psycopg": NETWORK,
    "psycopg2": NETWORK,
    "asyncpg": NETWORK,
    "shutil": FILE,
    "tempfile": FILE,
    "subprocess": PROCESS,
    "threading": THREAD,
    "multiprocessing": THREAD,
    "concurrent.futures": THREAD,
}
#: Calls of the packages above that are pure.
PURE: Final = frozenset({"secrets.compare_digest"})
#: Methods that leave the loop, whatever they are called on.
METHODS: Final[dict[str, Rule]] = {"run_in_executor": ASYNCIO_IO}
_PATH_IO: Final = """
    cwd exists glob home is_dir is_file iterdir lstat mkdir open read_bytes read_text rename replace
    resolve rglob rmdir samefile stat symlink_to touch unlink walk write_bytes write_text
"""
PATH_METHODS: Final = frozenset(_PATH_IO.split())
#: Verbs of the context that give something to await.
AWAITED_VERBS: Final = frozenset({"execute", "invoke", "promise", "run", "signal", "sleep"})
#: Verbs that take a function which then runs outside replay.
RUNNING_VERBS: Final = frozenset({"run"})


def rule_for(name: str, *, called: bool) -> Rule | None:
    """Return the rule that refuses the object defined as *name*, if any."""
    if name in NAMES:
        return NAMES[name]
    if not called or name in PURE:
        return None
    package = name
    while package := package.rpartition(".")[0]:
        if package in PACKAGES:
            return PACKAGES[package]
    return None
