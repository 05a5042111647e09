"""CloudEvents in binary mode, over AMQP: the headers of every message that is meant for anybody.

The attributes of CloudEvents are headers that begin with ``ce-``, and the body is the data alone. A consumer
that speaks CloudEvents needs nothing of ours; one that does not may leave the headers unread.
"""

from __future__ import annotations

import datetime as dt
from typing import Final

from tidewheel.broker.errors import PoisonMessage
from tidewheel.broker.message import Message

SPEC_VERSION: Final = "1.0"
#: What a source begins with; the namespace follows.
SOURCE: Final = "/tidewheel/"


def headers_of(
    *, id: str, type: str, namespace: str, subject: str | None, time: dt.datetime | None
) -> dict[str, str]:
    """Return the headers of a message; *subject* is the run it is about, if it is about one."""
    headers = {
        "ce-specversion": SPEC_VERSION,
        "ce-id": id,
        "ce-type": type,
        "ce-source": SOURCE + namespace,
    }
    if subject is not None:
        headers["ce-subject"] = subject
    if time is not None:
        headers["ce-time"] = rfc3339(time)
    return headers


def namespace_of(message: Message) -> str:
    """Return the namespace that *message* comes from, or raise ``PoisonMessage`` if it is not one of ours."""
    source = message.headers.get("ce-source", "")
    namespace = source.removeprefix(SOURCE)
    if not source.startswith(SOURCE) or not namespace:
        raise PoisonMessage(f"not a message of ours: its ce-source is {source!r}, not {SOURCE}<namespace>")
    return namespace


def rfc3339(at: dt.datetime) -> str:
    """Return *at*, which has a time zone, as CloudEvents writes it."""
    assert at.tzinfo is not None
    return at.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")
