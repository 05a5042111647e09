"""The headers that RabbitMQ adds to a message, told apart from those it was published with.

RabbitMQ says in its own words why a message died and how often it was delivered; other brokers say it in
ours (``broker/message.py``). Whoever reads a message sees ours only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tidewheel.broker.message import DELIVERED_TOO_OFTEN, DELIVERY_COUNT, EXPIRED, ORIGIN, REASON

#: How often a message was delivered before it was put into its queue again as a new one.
CARRIED: Final = "x-tidewheel-deliveries"
#: What RabbitMQ says of the deaths of a message, the latest first.
DEATHS: Final = "x-death"
_OURS_NOT: Final = (DEATHS, "x-first-death-", "x-last-death-", DELIVERY_COUNT, "x-acquired-count", CARRIED)
_REASONS: Final = {"expired": EXPIRED, "delivery_limit": DELIVERED_TOO_OFTEN}


def read_headers(raw: Mapping[str, Any], *, redelivered: bool) -> tuple[dict[str, str], int]:
    """Return the headers in our words, and how often the message was delivered before.

    A classic queue does not count: *redelivered* says that it was, and that is taken for once.
    """
    if not raw:
        return {}, int(redelivered)
    headers = {name: str(value) for name, value in raw.items() if not name.startswith(_OURS_NOT)}
    reason, origin = _last_death(raw)
    if reason:
        # These are newer than any that were published: publishing again leaves RabbitMQ's out.
        headers |= {REASON: _REASONS.get(reason, reason), ORIGIN: origin}
    return headers, _number(raw.get(CARRIED)) + _number(raw.get(DELIVERY_COUNT, int(redelivered)))


def _last_death(raw: Mapping[str, Any]) -> tuple[str, str]:
    if "x-last-death-reason" in raw:
        return str(raw["x-last-death-reason"]), str(raw.get("x-last-death-queue", ""))
    deaths = raw.get(DEATHS)
    if isinstance(deaths, list) and deaths and isinstance(deaths[0], Mapping):
        return str(deaths[0].get("reason", "")), str(deaths[0].get("queue", ""))
    return "", ""


def _number(value: Any) -> int:
    """Read a count; anybody may have written the header, so nonsense counts as nothing."""
    try:
        return max(0, int(value))
    except (TypeError, ValueError):
        return 0
