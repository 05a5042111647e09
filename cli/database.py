"""``tidewheel db migrate`` and ``db status``: the store's schema, and how much is in it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tidewheel.cli import output
from tidewheel.cli.connecting import Where, require_store, shown, stored
from tidewheel.cli.exit_codes import ExitCode
from tidewheel.cli.listing import every_run
from tidewheel.cli.timeline.text import counted
from tidewheel.sdk.settings import ConnectionSettings
from tidewheel.store import migrations
from tidewheel.store.revision import ROLES
from tidewheel.store.urls import MemoryUrl, PostgresUrl, SqliteUrl, parse_url

_MIB = 1024 * 1024
#: The log beside the file holds what was committed and not moved into it yet.
_LOGS = ("", "-wal")


def migrate(store: str | None, *, roles: bool, as_json: bool) -> ExitCode:
    """Bring the store to the newest schema, and print what was applied."""
    settings = Where(store=store).settings()
    applied = migrations.migrate(settings.store, roles=roles)
    found = migrations.schema_status(settings.store)
    if as_json:
        output.emit_json({"store": shown(settings.store), "revision": found.current, "applied": applied})
    elif applied:
        output.say(f"{shown(settings.store)}: applied {', '.join(applied)}")
    else:
        output.say(f"{shown(settings.store)}: schema {found.current} is up to date")
    if roles and not as_json:
        output.say(f"roles: {', '.join(ROLES)}; grant them to the users that log in")
    return ExitCode.OK


def status(where: Where, *, as_json: bool) -> ExitCode:
    """Print how the store stands, without changing anything."""
    settings = where.settings()
    found = asyncio.run(_status(where, settings))
    if as_json:
        output.emit_json(found)
    else:
        for line in _lines(found):
            output.emit(line)
    return ExitCode.OK if found["up_to_date"] else ExitCode.FINDING


async def _status(where: Where, settings: ConnectionSettings) -> dict[str, Any]:
    parsed = parse_url(settings.store)
    found: dict[str, Any] = {"store": shown(settings.store), "namespace": settings.namespace}
    if not isinstance(parsed, MemoryUrl):
        require_store(settings)
        schema = await asyncio.to_thread(migrations.schema_status, settings.store)
        found |= {"revision": schema.current, "newest": schema.newest, "up_to_date": schema.is_current}
        found["size_bytes"] = await asyncio.to_thread(_size, parsed)
        if not schema.is_current:
            return found
    else:
        found |= {"revision": None, "newest": None, "up_to_date": True, "size_bytes": None}
    found["runs"] = await _counts(where)
    return found


async def _counts(where: Where) -> dict[str, int]:
    counts = {"open": 0, "ended": 0, "parked": 0}
    async with stored(where) as (store, namespace):
        async for record in every_run(store, namespace):
            counts["ended" if record.ended else "open"] += 1
            counts["parked"] += record.parked is not None
    return counts


def _size(url: SqliteUrl | PostgresUrl) -> int:
    if isinstance(url, SqliteUrl):
        return size_of(url.path)
    from tidewheel.store.postgres.migrating import size_of_tables  # noqa: PLC0415 - only when it is used

    return size_of_tables(url.url)


def size_of(path: Path) -> int:
    """Return how many bytes the store takes on the disk."""
    files = [path.with_name(path.name + end) for end in _LOGS]
    return sum(file.stat().st_size for file in files if file.exists())


def _lines(found: dict[str, Any]) -> list[str]:
    lines = [f"store      {found['store']}"]
    if found["newest"] is not None:
        note = "up to date" if found["up_to_date"] else f"this release needs {found['newest']}"
        if not found["up_to_date"] and (found["revision"] or "") < found["newest"]:
            note += ": run `tidewheel db migrate`"
        lines.append(f"schema     {found['revision'] or 'none'}, {note}")
        lines.append(f"size       {found['size_bytes'] / _MIB:,.1f} MiB")
    if "runs" in found:
        runs = found["runs"]
        lines.append(f"namespace  {found['namespace']}")
        parked = f" ({runs['parked']:,} parked)" if runs["parked"] else ""
        lines.append(f"runs       {counted(runs['open'], 'open run')}{parked}, {runs['ended']:,} ended")
    return lines
