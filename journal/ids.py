"""Names and positions: what a run, a promise and a command are called.

A *path* is a Dewey position in the call tree, kept as text (``"1"``, ``"1.0"``)
because that is how journals show it. A run's own path is ``""`` for a root run
and its promise's path for a child. Everything that comes from outside is
checked here, at the door: later layers split ids on ``:``, ``.`` and ``|``.
"""

from __future__ import annotations

import enum
import re
from typing import NamedTuple

import msgspec

from tidewheel.journal.errors import InvalidRequest

_RUN_ID = re.compile(r"[A-Za-z0-9._/@+=~-]{1,200}")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
_VERSION = re.compile(r"[A-Za-z0-9._+-]{1,100}")
#: A path: positions joined by dots. A child deeper than a hundred is a runaway recursion.
PATH_PATTERN = r"(?:0|[1-9][0-9]{0,9})(?:\.(?:0|[1-9][0-9]{0,9})){0,99}"
_PATH = re.compile(PATH_PATTERN)

#: An error quotes at most this much of what it refuses.
SHOWN_MAX = 80


class CommandType(enum.Enum):
    """The kinds of durable call, each numbered on its own within a segment."""

    #: Every command is looked up by its type: up to Python 3.11 an enum's own hash is a slow function.
    __hash__ = object.__hash__

    TASK = "Task"
    CHILD = "ChildWorkflow"
    OPERATION = "Operation"
    TIMER = "Timer"
    TIMER_CANCEL = "CancelTimer"
    PROMISE = "Promise"
    STATE = "State"
    SIGNAL = "Signal"
    RANDOM = "Random"
    TIME = "Time"
    JOIN_SET = "JoinSet"


class CommandId(msgspec.Struct, frozen=True, gc=False):
    """A durable call as replay matches it: the n-th of its type, or the one with this key."""

    # One is made for every command, and a named tuple takes several times as long.

    type: CommandType
    which: int | str

    @property
    def n(self) -> int:
        """The number of a command that has no key."""
        assert isinstance(self.which, int)
        return self.which

    def __str__(self) -> str:
        which = repr(self.which) if isinstance(self.which, str) else self.which
        return f"{self.type.value}({which})"


class PromiseId(NamedTuple):
    """A promise of a run, or the run itself: the root run's id and a path."""

    run: str
    path: str = ""

    def __str__(self) -> str:
        return f"{self.run}:{self.path}" if self.path else self.run

    @classmethod
    def parse(cls, text: str) -> PromiseId:
        """Read ``run_id`` or ``run_id:path``, refusing anything else."""
        run, colon, path = text.partition(":")
        check_run_id(run)
        if colon:
            check_path(path)
        return cls(run, path)

    def child(self, position: int) -> PromiseId:
        """The promise at *position* among this run's own commands."""
        return PromiseId(self.run, child_path(self.path, position))

    def parent(self) -> PromiseId | None:
        """Who to notify when this one completes; ``None`` for a root run."""
        return PromiseId(self.run, self.path.rpartition(".")[0]) if self.path else None


def child_path(path: str, position: int) -> str:
    """Return the path of the command at *position* in the run whose own path is *path*."""
    return f"{path}.{position}" if path else str(position)


def position_of(path: str) -> int:
    """Return the last component of *path*: its place among its run's commands."""
    return int(path.rpartition(".")[2])


def path_order(path: str) -> tuple[int, ...]:
    """Sort key that puts ``"2"`` before ``"10"``."""
    return tuple(int(part) for part in path.split("."))


def is_path(text: str) -> bool:
    """Tell whether *text* is a well-formed, not absurdly deep path."""
    return _PATH.fullmatch(text) is not None


def check_path(text: str) -> str:
    """Return *text* if it is a path, else refuse it."""
    if not is_path(text):
        raise InvalidRequest(f"{text[:SHOWN_MAX]!r} is not a promise path: write positions like '1' or '1.0'")
    return text


def check_run_id(text: str) -> str:
    """Return *text* if it may name a run, else refuse it."""
    if not isinstance(text, str) or _RUN_ID.fullmatch(text) is None:
        raise InvalidRequest(
            f"run id {_shown(text)} is not allowed: use 1 to 200 of A-Z a-z 0-9 . _ / @ + = ~ -"
        )
    return text


def check_name(text: str, what: str) -> str:
    """Return *text* if it may be the name of a *what* (workflow, task, queue, signal, key)."""
    if not isinstance(text, str) or _NAME.fullmatch(text) is None:
        raise InvalidRequest(f"{what} {_shown(text)} is not allowed: use 1 to 100 of A-Z a-z 0-9 _ -")
    return text


def check_version(text: str) -> str:
    """Return *text* if it may label a version of the code."""
    if not isinstance(text, str) or _VERSION.fullmatch(text) is None:
        raise InvalidRequest(f"version {_shown(text)} is not allowed: use 1 to 100 of A-Z a-z 0-9 . _ + -")
    return text


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 3] + "..."
