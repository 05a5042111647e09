"""Which store a client has, if it has one: that is found out without opening it.

A program that only publishes starts needs no store, and may have none: nothing says where it is, and its
broker is a server. What the default would give it then is an empty file in its working directory, which no
worker ever looks at. So that is refused, by the first verb that needs a store.
"""

from __future__ import annotations

import re
from typing import Final

from tidewheel.sdk.settings import ConnectionSettings
from tidewheel.store.urls import SqliteUrl, parse_url

#: Stores and brokers that live in the process or in files of SQLite.
_NEARBY: Final = frozenset({"embedded", "memory", "sqlite", "sqlite3"})

NO_STORE: Final = (
    "this client has no store: nothing says where it is, and only publish_start does without; set "
    "TIDEWHEEL_STORE, or pass store="
)


def is_nearby(url: str) -> bool:
    """Tell whether *url* names something in this process or in a file, and no server."""
    return re.split("[+:]", url.lower())[0] in _NEARBY


def lacks_store(settings: ConnectionSettings, store: object, broker: object) -> str | None:
    """Say why a client of *settings* has no store, if it has none; its caller passed *store* and *broker*."""
    is_given = store is not None or ConnectionSettings.is_in_environment("store")
    if is_given or not isinstance(broker, str | None) or is_nearby(settings.broker):
        return None
    where = parse_url(settings.store)
    try:
        is_there = not isinstance(where, SqliteUrl) or where.path.exists()
    except OSError:  # a folder that may not be looked into: opening the file will say so
        is_there = True
    return None if is_there else NO_STORE
