"""Says which runs this process begins and ends, by looking at what passes on its way to the store.

Nothing is asked of the store for it: a worker reads a run before it writes to it, and the answer
to a write says what became of it. Inputs and results are not told.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from tidewheel.cli.timeline.text import because, duration
from tidewheel.journal import events as ev
from tidewheel.store.append import Append, Appended, Fate
from tidewheel.store.protocol import Answered, Loaded, Store
from tidewheel.store.records import RunRef

logger = logging.getLogger("tidewheel.runs")

#: Runs whose workflow and start are remembered; of others only the id is told.
REMEMBERED_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class _Known:
    workflow: str
    created_at: dt.datetime


class Witness:
    """A store that tells of what is written to it; everything else is the store's own."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: OrderedDict[RunRef, _Known] = OrderedDict()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def load(self, run: RunRef, *, after: int | None = None) -> Loaded | None:
        """Read a run, and remember what it is of."""
        loaded = await self._store.load(run, after=after)
        self._remember(loaded)
        return loaded

    def sketched(self, sketch: bytes) -> Loaded | None:
        """Take a run from its hint, and remember what it is of."""
        loaded = self._store.sketched(sketch)
        self._remember(loaded)
        return loaded

    def _remember(self, loaded: Loaded | None) -> None:
        if loaded is None:
            return
        run = loaded.run.ref
        self._known[run] = _Known(loaded.run.workflow, loaded.run.created_at)
        self._known.move_to_end(run)
        if len(self._known) > REMEMBERED_MAX:
            self._known.popitem(last=False)

    async def append(self, batch: Sequence[Append]) -> list[Appended]:
        """Write, and tell of it."""
        answers = await self._store.append(batch)
        for request, answer in zip(batch, answers, strict=True):
            self._tell(request, answer)
        return answers

    def submit(self, request: Append, answered: Answered) -> None:
        """Write, and tell of it before whoever waits is told."""

        def told(answer: Appended | Exception) -> None:
            if not isinstance(answer, Exception):
                self._tell(request, answer)
            answered(answer)

        self._store.submit(request, told)

    def _tell(self, request: Append, answer: Appended) -> None:
        known = self._known.get(request.run)
        moves = request.moves
        if moves is not None and answer.fate is Fate.COMMITTED and moves.events:
            if moves.expected == b"":  # nobody has activated it before
                _log(request.run, known, "started")
            last = moves.events[-1]
            if isinstance(last, ev.TERMINAL):
                _log(request.run, known, _ending(last), ended_at=answer.now)


def watched(store: Store) -> Store:
    """Return *store*, telling of what this process does to runs, if anybody would hear it."""
    return cast("Store", Witness(store)) if logger.isEnabledFor(logging.INFO) else store


def _ending(event: ev.Event) -> str:
    match event:
        case ev.ExecutionCompleted():
            return "completed"
        case ev.ExecutionFailed(error=error):
            return f"failed: {because(error)}"
        case _:
            return "was cancelled"


def _log(run: RunRef, known: _Known | None, what: str, *, ended_at: dt.datetime | None = None) -> None:
    fields: dict[str, Any] = dict(run.log_fields())
    name = f"run {run.run_id}"
    if known is not None:
        fields["workflow"] = known.workflow
        if not run.run_id.startswith(known.workflow):
            name += f" ({known.workflow})"
    took = ""
    if known is not None and ended_at is not None:
        fields["seconds"] = round((ended_at - known.created_at).total_seconds(), 3)
        took = f" after {duration(fields['seconds'])}"
    head, separator, reason = what.partition(":")
    logger.info("%s %s%s%s%s", name, head, took, separator, reason, extra={"fields": fields, "run": run})
