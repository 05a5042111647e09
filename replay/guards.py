"""Refusals for what replay cannot repeat: clocks, chance, files, sockets, threads, processes.

Active only while a workflow's code is moving on its deterministic loop, in the
thread that moves it. Everything else in the process gets what stood there before,
which may be somebody's own patch, and outside such moments nothing is patched. One
method is the exception: see ``_refuse_unseeded``.

What cannot be patched (``datetime.now``, a name imported earlier) is found by
``tidewheel check`` and when a workflow is registered. What only looks at the world
and has no audit event (``os.stat``, ``os.environ``) is not found here.
"""

from __future__ import annotations

import asyncio
import functools
import operator
import os
import random
import secrets
import sys
import threading
import time
import uuid
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

from tidewheel.journal.errors import TidewheelError

USE_TASK = "put it in a task and `await ctx.invoke(task, ...)`, or `await ctx.run(key, fn)`"
_USE_NOW = "use ctx.now()"
_USE_RANDOM = "use ctx.random(), or random.Random(seed) with a seed from it"
_USE_UUID = "use ctx.random() or ctx.uuid()"

#: Functions that are replaced while workflow code moves, by what to use instead. A platform may lack some.
_REFUSED: tuple[tuple[ModuleType, str, tuple[str, ...]], ...] = (
    (time, _USE_NOW, ("time", "time_ns", "monotonic", "monotonic_ns", "clock_gettime", "clock_gettime_ns")),
    (time, _USE_NOW, ("gmtime", "localtime", "ctime", "asctime", "strftime")),
    (time, _USE_NOW + ", or measure inside a task",
     ("perf_counter", "perf_counter_ns", "process_time", "process_time_ns", "thread_time", "thread_time_ns")),
    (time, "use `await ctx.sleep(seconds)`", ("sleep",)),
    (uuid, "use ctx.uuid()", ("uuid1", "uuid4")),
    (os, _USE_UUID, ("urandom", "getrandom")),
    (secrets, _USE_UUID, ("token_bytes", "token_hex", "token_urlsafe", "randbelow", "randbits", "choice")),
    (random, _USE_RANDOM, tuple(one for one in random.__all__ if not isinstance(getattr(random, one), type))),
    (random, _USE_UUID, ("_urandom",)),
    (threading, USE_TASK, ("_start_new_thread", "_start_joinable_thread")),  # of Python 3.13 the second
)  # fmt: skip

#: What a private function is known as.
_SHOWN = {
    "random._urandom": "random.SystemRandom",
    "threading._start_new_thread": "threading.Thread.start",
    "threading._start_joinable_thread": "threading.Thread.start",
}

#: Functions that read the clock only where they are given no time, and the place of that argument.
_TIME_AT = {"time.gmtime": 0, "time.localtime": 0, "time.ctime": 0, "time.asctime": 0, "time.strftime": 1}

#: Audit events that mean the outside world is touched.
_AUDITED = frozenset(
    {
        "open", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn",
        "os.startfile", "os.kill", "os.killpg", "os.listdir", "os.scandir", "os.walk", "os.fwalk",
        "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.link", "os.symlink", "os.truncate",
        "os.utime", "os.chmod", "os.chown", "os.chflags", "os.chdir", "os.lockf", "os.getxattr",
        "os.listxattr", "os.setxattr", "os.removexattr", "os.putenv", "os.unsetenv", "glob.glob",
        "pathlib.Path.glob", "pathlib.Path.rglob", "pathlib.Path.walk", "shutil.copyfile",
        "shutil.copymode", "shutil.copystat", "shutil.copytree", "shutil.move", "shutil.rmtree",
        "shutil.chown", "shutil.make_archive", "shutil.unpack_archive", "tempfile.mkstemp",
        "tempfile.mkdtemp", "subprocess.Popen", "pty.spawn", "_thread.start_new_thread",
        "_thread.start_joinable_thread", "socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg",
        "socket.getaddrinfo", "socket.getnameinfo", "socket.gethostbyname", "socket.gethostbyaddr",
        "socket.gethostname", "sqlite3.connect", "urllib.Request", "webbrowser.open",
    }
)  # fmt: skip

#: Packages that may read the clock or a file on the code's behalf: log records carry a time,
#: tracebacks quote lines, modules, their metadata and time zones come from files. None of it
#: reaches the code's decisions, or it is the same on replay as the code itself.
_TRUSTED = frozenset(
    {
        "importlib", "linecache", "logging", "structlog", "tokenize", "traceback", "warnings", "zipimport",
        "zoneinfo",
    }
)  # fmt: skip

#: Packages that may make an unseeded generator: a copy gets its original's state at once, and
#: the files that tempfile makes up names for are refused themselves, with better advice.
_TRUSTED_WITH_CHANCE = _TRUSTED | {"copy", "tempfile"}

#: Calls between a trusted package and what it uses, at most.
_FRAMES_MAX = 200


class ForbiddenInWorkflow(TidewheelError):
    """Workflow code did something that cannot be repeated on replay. The message names what to use."""


def refused(what: str, instead: str) -> ForbiddenInWorkflow:
    """Make the error for *what*, a call as the code would write it."""
    return ForbiddenInWorkflow(f"{what} cannot be repeated on replay: {instead}")


class _Place:
    """A module's functions: what was found there, and the refusals that stand in for it meanwhile.

    They are swapped at every activation, dozens of them: where nobody else has touched any, which
    is nearly always, that is one comparison and one update, made by ``raise_guards`` and
    ``lower_guards`` themselves. The methods here are for the other case.
    """

    __slots__ = ("_instead", "_name", "all_found", "all_refusals", "found", "pick", "refusals", "space")

    def __init__(self, module: ModuleType) -> None:
        rows = [(name, instead) for owner, instead, names in _REFUSED if owner is module for name in names]
        self._name = module.__name__
        self.space = vars(module)
        self._instead = {name: instead for name, instead in rows if name in self.space}
        self.found = {name: self.space[name] for name in self._instead}
        self.refusals = {name: self._refusal(name) for name in self._instead}
        self.pick: Callable[[dict[str, Any]], object] = operator.itemgetter(*self._instead)
        self.all_found = self.pick(self.found)
        self.all_refusals = self.pick(self.refusals)

    def cover_each(self) -> None:
        """Remember what stands here, and put the refusals in its place."""
        space = self.space
        for name in self._instead.keys() & space.keys():
            if space[name] is not self.found[name]:
                self.found[name] = space[name]
                self.refusals[name] = self._refusal(name)
            space[name] = self.refusals[name]
        self.all_found = self.pick(self.found)
        self.all_refusals = self.pick(self.refusals)

    def uncover_each(self) -> None:
        """Give back what was found, except where somebody has replaced the refusal."""
        space = self.space
        for name, refusal in self.refusals.items():
            if space.get(name) is refusal:
                space[name] = self.found[name]

    def _refusal(self, name: str) -> Callable[..., Any]:
        # Each is for one function and stays so: somebody may keep it, or wrap it, and put that here later.
        found, instead, path = self.found[name], self._instead[name], f"{self._name}.{name}"
        shown, time_at = _SHOWN.get(path, path), _TIME_AT.get(path)

        @functools.wraps(found)
        def refuse(*args: Any, **kwargs: Any) -> Any:
            if _in_workflow() and not _has_time(args, time_at) and not _trusted_caller(_TRUSTED):
                raise refused(f"{shown}()", instead)
            return found(*args, **kwargs)

        return refuse


def _has_time(args: tuple[Any, ...], place: int | None) -> bool:
    return place is not None and len(args) > place and args[place] is not None


_PLACES = tuple(_Place(module) for module in dict.fromkeys(owner for owner, _, _ in _REFUSED))

#: Returns the number of the thread that calls it.
this_thread = threading.get_ident

_lock = threading.Lock()
_moving = 0
_audit_installed = False
_is_workflow_loop: Callable[[object], bool] = lambda _loop: False  # noqa: E731 - replaced by `protect`


def protect(is_workflow_loop: Callable[[object], bool]) -> None:
    """Tell the guards which running loop is a workflow's; called once, by the module that moves it."""
    global _is_workflow_loop  # noqa: PLW0603 - the one switch of this process-wide guard
    _is_workflow_loop = is_workflow_loop
    _refuse_unseeded(random.Random, "random.Random", _USE_RANDOM, seed_helps=True)
    _refuse_unseeded(random.SystemRandom, "random.SystemRandom", _USE_UUID, seed_helps=False)


def raise_guards() -> None:
    """Put the refusals in place; balanced by ``lower_guards``. Threads may overlap."""
    global _moving, _audit_installed  # noqa: PLW0603 - process-wide by nature
    with _lock:
        _moving += 1
        if _moving > 1:
            return
        if not _audit_installed:
            sys.addaudithook(_audit)
            _audit_installed = True
        for place in _PLACES:
            space = place.space
            try:
                if place.pick(space) == place.all_found:
                    space |= place.refusals  # in place
                    continue
            except KeyError:  # somebody has removed one
                pass
            place.cover_each()


def lower_guards() -> None:
    """Give the process its own functions back once no workflow is moving."""
    global _moving  # noqa: PLW0603 - process-wide by nature
    with _lock:
        _moving -= 1
        if _moving > 0:
            return
        for place in _PLACES:
            space = place.space
            try:
                if place.pick(space) == place.all_refusals:
                    space |= place.found  # in place
                    continue
            except KeyError:  # somebody has removed one
                pass
            place.uncover_each()


def _refuse_unseeded(generator: type[random.Random], shown: str, instead: str, *, seed_helps: bool) -> None:
    """Refuse to make a *generator* from chance, by way of the method that its making calls.

    The class stays what it is, for ``isinstance`` and for whoever imported it by name. And the
    method stays for good: to change a class at every activation would take the interpreter's
    caches for it away from the whole process.
    """
    original = generator.seed

    @functools.wraps(original)
    def seed(self: random.Random, a: Any = None, *args: Any, **kwargs: Any) -> None:
        by_chance = a is None or not seed_helps
        if by_chance and _in_workflow() and not _trusted_caller(_TRUSTED_WITH_CHANCE):
            raise refused(f"{shown}()", instead)
        original(self, a, *args, **kwargs)

    generator.seed = seed  # type: ignore[method-assign]  # which is the point


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if _moving == 0 or event not in _AUDITED or not _in_workflow():
        return
    if _trusted_caller(_TRUSTED) or (event == "open" and _reads_time_zone(*args)):
        return
    # The message reaches the journal: a path may, an address with its query must not.
    names_path = event == "open" or event.startswith(("os.", "shutil."))
    touched = repr(args[0]) if names_path and args and isinstance(args[0], str) else ""
    raise refused(f"{event}({touched})", USE_TASK)


def _in_workflow() -> bool:
    return _is_workflow_loop(asyncio._get_running_loop())  # noqa: SLF001 - the public call raises where there is none


def _trusted_caller(trusted: frozenset[str]) -> bool:
    """Tell whether the workflow's code got here by way of a *trusted* package.

    What counts lies between the refusal and the workflow's own loop; who moves the loop does not.
    """
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - the only way to see who is calling
    for _ in range(_FRAMES_MAX):
        if frame is None:
            return False
        module = str(frame.f_globals.get("__name__", ""))
        if module == _is_workflow_loop.__module__:
            return False
        if module.partition(".")[0] in trusted:
            return True
        frame = frame.f_back
    return False


def _reads_time_zone(path: object, mode: object, _flags: object) -> bool:
    # zoneinfo opens its files from C, so that no frame of it can be seen.
    zoneinfo = sys.modules.get("zoneinfo")
    if zoneinfo is None or mode != "r" or not isinstance(path, str):
        return False
    return any(path.startswith(os.path.join(root, "")) for root in zoneinfo.TZPATH)  # noqa: PTH118 - text is all there is
