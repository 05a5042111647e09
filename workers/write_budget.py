"""How long the store may take over an event of a step, and what becomes of one that takes longer. Pure.

This is the contract's ``stateStore``, by its own names. The start of a step that its worker has may be late:
its body begins, and the start is written with what the step comes to, before it. What a step came to never
is: it is found out whether that was written, and if it was not, the attempt has failed. A store that cannot
be reached at all has taken no time over it: for such a one results wait.

A claim is no such start: it decides who has a step, and is always waited for.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Annotated, Final

from msgspec import UNSET

from tidewheel.journal import events as ev
from tidewheel.journal.errors import InvalidRequest
from tidewheel.journal.public.event import PUBLIC_TYPES
from tidewheel.sdk.settings import Key, Settings, Unit
from tidewheel.store.append import Completed, Fact
from tidewheel.workers.outcomes import attempt_unwritten

STEP_STARTED: Final = "StepStarted"
#: What a step came to: nobody may go on as if this were written when it is not.
OUTCOMES: Final = ("StepCompleted", "StepFailed")
#: The word for a list with nothing in it: a variable that is set to nothing counts as not set.
NONE: Final = "none"


def _names(given: Sequence[str]) -> Sequence[str]:
    """Return the event classes that are *given*, each one that the contract has."""
    if tuple(given) == (NONE,):
        return ()
    for name in given:
        if name not in PUBLIC_TYPES:
            known = ", ".join(PUBLIC_TYPES)
            raise InvalidRequest(
                f"there is no event class {name!r}; the contract has {known}; {NONE!r} alone stands for none"
            )
    return given


def _check_fail_open(given: Sequence[str]) -> None:
    for name in _names(given):
        if name != STEP_STARTED:
            raise InvalidRequest(
                f"{name} may not fail open, only {STEP_STARTED} may: leave it out, or write {NONE!r}"
            )


def _check_never(given: Sequence[str]) -> None:
    missing = [name for name in OUTCOMES if name not in _names(given)]
    if missing:
        raise InvalidRequest(
            f"{' and '.join(missing)} must not be left out: a step would go on with a result that is lost"
        )


class StateStoreConfig(Settings, frozen=True, kw_only=True):
    """The contract's `stateStore`: how long it may take over events of steps, and which may be late."""

    write_latency_budget_ms: Annotated[
        int,
        Key(
            "TIDEWHEEL_WRITE_LATENCY_BUDGET_MS",
            "`writeLatencyBudgetMs`: a result that is not written within it fails its attempt.",
            Unit.MILLISECONDS,
            least=1,
            most=3_600_000,
        ),
    ] = 3_000
    fail_open_for_event_class: Annotated[
        tuple[str, ...],
        Key(
            "TIDEWHEEL_FAIL_OPEN_FOR_EVENT_CLASS",
            "`failOpenForEventClass`: what may be written late. `none`: every body waits for its start.",
            check=_check_fail_open,
        ),
    ] = (STEP_STARTED,)
    never_fail_open: Annotated[
        tuple[str, ...],
        Key(
            "TIDEWHEEL_NEVER_FAIL_OPEN",
            "`neverFailOpen`: what a step does not go on without.",
            check=_check_never,
        ),
    ] = OUTCOMES

    def __post_init__(self) -> None:
        """Refuse values that can never work, and lists that contradict each other."""
        Settings.__post_init__(self)
        if self.starts_may_be_late and STEP_STARTED in self.never_fail_open:
            raise InvalidRequest(
                f"{STEP_STARTED} is in TIDEWHEEL_FAIL_OPEN_FOR_EVENT_CLASS and in TIDEWHEEL_NEVER_FAIL_OPEN; "
                f"leave it out of one of them (to fail open for nothing, write {NONE!r})"
            )

    @property
    def budget_s(self) -> float:
        """The budget in seconds."""
        return self.write_latency_budget_ms / 1000

    @property
    def starts_may_be_late(self) -> bool:
        """Whether a body may begin before its start is written."""
        return STEP_STARTED in self.fail_open_for_event_class


def after_failed_write(
    config: StateStoreConfig, event: ev.InvokeScheduled, fact: Fact, taken_s: float, now: dt.datetime
) -> Fact:
    """Return what is to be written of *fact* next, after writes of it failed that took *taken_s* together.

    A result over the budget is not written any more. What is written in its place is refused by the store if
    the result is there after all: it is of an attempt that has ended.
    """
    if not isinstance(fact, Completed) or fact.result.error is not UNSET or taken_s <= config.budget_s:
        return fact
    return attempt_unwritten(
        event, attempt=fact.attempt, owner=fact.owner, taken_s=taken_s, budget_s=config.budget_s, now=now
    )
