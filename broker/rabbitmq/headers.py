"""The headers that RabbitMQ adds to a message, told apart from those it was published with.

RabbitMQ says in its own words why a message died and how often it was delivered; other brokers say it in
ours (``broker/message.py``). Whoever reads a message sees ours only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tidewheel.broker.message import (
    DELIVERED_TOO_OFTEN,
    DELIVERY_COUNT,
    EXPIRED,
    ORIGIN,
    REASON,
    key_header,
)

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
    reason, origin, key = _last_death(raw)
    if reason:
        # These are newer than any that were published: publishing again leaves RabbitMQ's out.
        headers = {**key_header(key, origin), **headers, REASON: _REASONS.get(reason, reason), ORIGIN: origin}
    return headers, _number(raw.get(CARRIED)) + _number(raw.get(DELIVERY_COUNT, int(redelivered)))


def _last_death(raw: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return why it died last, in which queue, and the key it was published under, as far as is said."""
    deaths = [death for death in _list(raw.get(DEATHS)) if isinstance(death, Mapping)]
    if "x-last-death-reason" in raw:
        reason, queue = str(raw["x-last-death-reason"]), str(raw.get("x-last-death-queue", ""))
    elif deaths:
        reason, queue = str(deaths[0].get("reason", "")), str(deaths[0].get("queue", ""))
    else:
        return "", "", ""
    keys = [_list(death.get("routing-keys")) for death in deaths if death.get("queue") == queue]
    return reason, queue, str(keys[0][0]) if keys and keys[0] else ""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _number(value: Any) -> int:
    """Read a count; anybody may have written the header, so nonsense counts as nothing."""
    try:
        return max(0, int(value))
    except (TypeError, ValueError):
        return 0
