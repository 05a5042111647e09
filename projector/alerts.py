"""What people have to know of projecting, and how it is told them.

An alert goes to whatever takes it (``RaiseAlert``), the log and the bus by default. A trouble of many runs is
told of a bounded number of them each minute, and of the others by their number: nobody reads ten thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from tidewheel.broker.alerts import KNOWN_ALERTS, Alert, Severity
from tidewheel.workers.alarms import Alarms
from tidewheel.workers.clock import StoreClock

GAP_DETECTED: Final = "PROJECTOR_GAP_DETECTED"
LAG_HIGH: Final = "PROJECTOR_LAG_HIGH"
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


def on_the_bus(alarms: Alarms, clock: StoreClock) -> RaiseAlert:
    """Return what tells of an alert in the log and on the bus."""

    def tell(*, name: str, details: Mapping[str, Any], **parts: Any) -> None:
        alarms.raise_alert(Alert(alert=name, details=dict(details), raised_at=clock.now(), **parts))

    return tell


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
            severity=KNOWN_ALERTS[name].severity,
            namespace=self._namespace,
            run_id=run_id,
            summary=summary,
            action=KNOWN_ALERTS[name].action,
            details=details | ({"not_told_before": untold} if untold else {}),
        )
        return True
