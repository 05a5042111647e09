"""Which rows have which status: the contract's words, by what the columns of a run hold."""

from __future__ import annotations

from tidewheel.journal.status import Phase, RunState


def _states() -> dict[str, list[str]]:
    states: dict[str, list[str]] = {}
    for phase in Phase:
        for cancelling in (False, True):
            for paused in (False, True):
                word = RunState(phase, None, cancelling, paused).public_status
                states.setdefault(word, []).append(f"{phase.value}{cancelling:d}{paused:d}")
    return states


#: ``phase``, ``cancelling`` and ``paused`` as one word (``running00``), by the contract's word for them.
STATES: dict[str, list[str]] = _states()
