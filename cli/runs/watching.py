"""``tidewheel run watch``: a run as it goes, until it ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable

from tidewheel.cli import output
from tidewheel.cli.connecting import Where, stored
from tidewheel.cli.exit_codes import ExitCode
from tidewheel.cli.live_line import LiveLine
from tidewheel.cli.runs.following import follow
from tidewheel.cli.runs.words import parked_words
from tidewheel.cli.timeline import RunProgress
from tidewheel.journal import events as ev
from tidewheel.journal.jsonform import to_json
from tidewheel.sdk.door import check_any_run_id
from tidewheel.store.protocol import Store
from tidewheel.store.records import RunRef


def run(where: Where, run_id: str, *, as_json: bool) -> ExitCode:
    """Print what happens until the run ends."""
    check_any_run_id(run_id)
    try:
        return asyncio.run(_watch(where, run_id, as_json=as_json))
    except KeyboardInterrupt:
        output.warn(f"no longer watched: run {run_id} goes on", as_json=as_json)
        return ExitCode.INTERRUPTED


async def _watch(where: Where, run_id: str, *, as_json: bool) -> ExitCode:
    async with stored(where) as (store, namespace):
        run = RunRef(namespace, run_id)
        teller = Teller(run_id, as_json=as_json)
        with teller.line:
            async with contextlib.aclosing(follow(store, run)) as growth:
                async for entries in growth:
                    teller.tell(entries)
                    if teller.progress.ended:
                        break
                    await teller.look_around(store, run)
    completed = isinstance(teller.latest, ev.ExecutionCompleted)
    return ExitCode.OK if completed else ExitCode.FINDING


class Teller:
    """Tells what happens: a line per story, or per event as JSON; a live line where somebody looks."""

    def __init__(self, run_id: str, *, as_json: bool) -> None:
        self.progress = RunProgress(run_id)
        self.line = LiveLine(wanted=not as_json)
        self.latest: ev.Event | None = None
        self._as_json = as_json
        self._began: ev.Entry | None = None
        self._parked: str | None = None

    def tell(self, entries: Iterable[ev.Entry]) -> None:
        """Tell of *entries*."""
        for entry in entries:
            self._began = self._began or entry
            self.latest = entry.event
            story = self.progress.story(entry)
            if self._as_json:
                (plain,) = to_json([entry])
                output.emit_json(plain)
            elif story is not None:
                with self.line.aside():
                    output.emit(f"{self._since(entry)}  {story}")

    async def look_around(self, store: Store, run: RunRef) -> None:
        """Bring the live line up to date, and say where the run was parked."""
        record = await store.find(run)
        parked = None if record is None or record.parked is None else parked_words(record)
        if parked is not None and parked != self._parked:
            with self.line.aside():
                output.warn(parked, as_json=self._as_json)
        self._parked = parked
        if self.line.is_shown:
            self.line.show(self.progress.line(await store.now()))

    def _since(self, entry: ev.Entry) -> str:
        """Return how long after the start *entry* came."""
        if entry.at is None or self._began is None or self._began.at is None:
            return " " * 11
        return f"{(entry.at - self._began.at).total_seconds():9.3f} s"
