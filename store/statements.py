"""The SQL statements, from the files in ``<store>/sql``: each begins with a line ``-- name: ...``.

Their text never changes while a process lives, so that a database prepares each of them once per connection.
"""

from __future__ import annotations

import re
from pathlib import Path

_NAMED = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)


def statements(store: str, file: str) -> dict[str, str]:
    """Return the statements of ``<store>/sql/<file>.sql`` by name, without their comments."""
    text = (Path(__file__).parent / store / "sql" / f"{file}.sql").read_text("utf-8")
    _, *parts = _NAMED.split(text)
    return {name: _COMMENT.sub("", body).strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}
