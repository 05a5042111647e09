"""What a suspended run waits for, as its journal says it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import UNSET, UnsetType

from tidewheel.journal import events as ev
from tidewheel.replay.history import History
from tidewheel.replay.loop import DurableTimer
from tidewheel.replay.promise import Promise

#: A suspension names at most this many promises: ten thousand branches that each move in turn
#: would otherwise write a hundred million of them.
WAITING_ON_MAX = 100


def suspension(
    pending: Mapping[str, Promise | DurableTimer], signals: list[ev.SignalWait]
) -> ev.ExecutionAwaiting:
    """Describe what the code waits for, given everything unsettled and the open signal waits."""
    waiting: list[str] = []
    truncated: bool | UnsetType = UNSET
    only: Promise | DurableTimer | None = None
    for path, one in pending.items():
        if not one.awaited():
            continue
        if len(waiting) == WAITING_ON_MAX:
            truncated = True
            break
        waiting.append(path)
        only = one
    if len(waiting) == 1 and isinstance(only, Promise) and only.signal_name is not None:
        return ev.ExecutionAwaiting(
            waiting_on=waiting,
            kind="signal",
            signal_name=only.signal_name,
            signal_promise_id=only.path,
            signals=signals,
        )
    by_join_set = isinstance(only, Promise) and only.join_set is not None
    kind: ev.AwaitKind = "single" if len(waiting) == 1 and not by_join_set else "any"
    return ev.ExecutionAwaiting(waiting_on=waiting, kind=kind, signals=signals, truncated=truncated)


def wait_is_over(wait: ev.ExecutionAwaiting | None, history: History, *, cancelled: bool) -> bool:
    """Tell whether what *wait* names has arrived. Being *cancelled* ends any wait."""
    if wait is None or cancelled:
        return True
    waiting_on, facts = wait.waiting_on, history.facts
    if wait.kind == "any":
        return wait.truncated is True or not facts.keys().isdisjoint(waiting_on)
    if len(waiting_on) == 1:  # nearly always, and worth a shortcut
        return waiting_on[0] in facts
    return all(path in facts for path in waiting_on)
