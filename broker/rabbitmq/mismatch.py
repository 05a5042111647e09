"""What RabbitMQ means when it refuses a declaration: which queue, which argument, what it has, what to do."""

from __future__ import annotations

import re
from typing import Final

_MISMATCH: Final = re.compile(
    r"inequivalent arg '(?P<argument>[^']*)' for (?P<what>queue|exchange) '(?P<name>.*)' in vhost '.*': "
    r"received (?P<asked>.*) but current is (?P<has>.*)",
    re.DOTALL,
)
_VALUE: Final = re.compile(r"(?:the value )?'(?P<value>.*?)'(?: of type '.*')?$", re.DOTALL)


def explanation(refusal: str) -> str:
    """Say what RabbitMQ's *refusal* of a declaration means, and what to do about it."""
    found = _MISMATCH.search(refusal)
    if found is None:
        return f"RabbitMQ refuses the declaration: {refusal}"
    what, name = found["what"], found["name"]
    asked, has = _value(found["asked"]), _value(found["has"])
    remedy = (
        f"let its messages be consumed, then delete it (rabbitmqctl delete_queue {name}) and start again"
        if what == "queue"
        else "delete it, or use another name"
    )
    return f"the {what} {name!r} exists with {found['argument']} {has}, and {asked} is asked for; {remedy}"


def _value(words: str) -> str:
    found = _VALUE.fullmatch(words.strip())
    return found["value"] if found else words.strip()
