"""What people have to know of projecting, and how it is told them.

An alert goes to whatever takes it (``RaiseAlert``), a log line by default. A trouble of many runs is told of
a bounded number of them each minute, and of the others by their number: nobody reads ten thousand.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, Protocol, TypeAlias

logger = logging.getLogger("tidewheel.projector")

Severity: TypeAlias = Literal["P1", "P2"]

GAP_DETECTED: Final = "PROJECTOR_GAP_DETECTED"
LAG_HIGH: Final = "PROJECTOR_LAG_HIGH"
_SEVERITIES: Final[dict[str, Severity]] = {GAP_DETECTED: "P1", LAG_HIGH: "P2"}
_ACTIONS: Final[dict[str, str]] = {
    GAP_DETECTED: (
        "nothing, if it happens once: what was missing is read from the journal. If it happens again and "
        "again, look who deletes or purges the projector's queues, and whether two stores share a broker"
    ),
    LAG_HIGH: (
        "look whether projectors run and reach the store and the broker; start more of them, up to the "
        "number of shards, if they are busy"
    ),
}
#: So many alerts of one name are raised in a minute; the others are counted.
PER_MINUTE_MAX: Final = 20
_MINUTE_S: Final = 60.0


class RaiseAlert(Protocol):
    """Takes an alert; it neither blocks nor raises."""

    def __call__(  # noqa: PLR0913 - an alert has these parts
        self,
        *,
        name: str,
        severity: Severity,
        namespace: str,
        run_id: str | None,
        summary: str,
        action: str,
        details: Mapping[str, Any],
    ) -> None:
        """Tell people."""


def log_alert(  # noqa: PLR0913 - as above
    *,
    name: str,
    severity: Severity,
    namespace: str,
    run_id: str | None,
    summary: str,
    action: str,
    details: Mapping[str, Any],
) -> None:
    """Write an alert into the log."""
    where = f"{namespace}/{run_id}" if run_id else namespace
    told = ", ".join(f"{key}={value}" for key, value in details.items())
    logger.warning("%s (%s) %s: %s [%s] What to do: %s", name, severity, where, summary, told, action)


class Alarm:
    """Raises the alerts of one namespace's projector, a bounded number of each name a minute."""

    def __init__(self, raise_alert: RaiseAlert, namespace: str, now: Callable[[], float]) -> None:
        self._raise = raise_alert
        self._namespace = namespace
        self._now = now
        self._begun: dict[str, float] = {}
        self._raised: dict[str, int] = {}
        self._untold: dict[str, int] = {}

    def raise_alert(self, name: str, summary: str, *, run_id: str | None = None, **details: Any) -> bool:
        """Tell people, unless they were told often enough in this minute; return whether they were."""
        now = self._now()
        if now - self._begun.get(name, -_MINUTE_S) >= _MINUTE_S:
            self._begun[name], self._raised[name] = now, 0
        if self._raised[name] >= PER_MINUTE_MAX:
            self._untold[name] = self._untold.get(name, 0) + 1
            return False
        self._raised[name] += 1
        untold = self._untold.pop(name, 0)
        self._raise(
            name=name,
            severity=_SEVERITIES[name],
            namespace=self._namespace,
            run_id=run_id,
            summary=summary,
            action=_ACTIONS[name],
            details=details | ({"not_told_before": untold} if untold else {}),
        )
        return True
