"""What holds for the snapshot of any journal, sensible or not."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from tests.property.test_public_fold import JOURNALS, told
from tidewheel.journal import events as ev
from tidewheel.journal import status
from tidewheel.journal.public import PublicEvent, PublicFold
from tidewheel.journal.snapshot import (
    RunSnapshot,
    empty,
    from_json,
    has_gap,
    reduce,
    reduce_all,
    snapshot_of,
    to_json,
)


def public(entries: list[ev.Entry]) -> list[PublicEvent]:
    """Return what a run ``r`` with this journal publishes."""
    return told(PublicFold.start("r"), entries)[1]


def legal(entries: list[ev.Entry]) -> list[ev.Entry]:
    """Return of *entries* what the state table allows, with no signal applied twice."""
    state = status.NEW
    kept: list[ev.Entry] = []
    for entry in entries:
        event = entry.event
        if isinstance(event, ev.RunPaused | ev.RunResumed):
            event = replace(event, signal_id=UNSET)
        if isinstance(event, ev.ExecutionStarted) and state.phase is status.Phase.CONTINUED:
            event = replace(event, admission="now")
        if status.allowed(state, event):
            state = status.advance(state, event)
            kept.append(ev.Entry(len(kept), entry.at, event))
    return kept


@given(JOURNALS)
def test_one_by_one_is_the_same_as_from_scratch(entries: list[ev.Entry]) -> None:
    """A projector that follows a run and one that rebuilds it agree."""
    snapshot = empty("r")
    for event in public(entries):
        snapshot = reduce(snapshot, event)

    assert snapshot == snapshot_of(entries, "r")


@given(JOURNALS, st.integers(0, 60))
def test_a_stored_snapshot_goes_on_as_it_would_have(entries: list[ev.Entry], cut: int) -> None:
    """What was written as JSON and read back is as good as what was kept, and is left as it was."""
    events = public(entries)
    kept = reduce_all(empty("r"), events[:cut])
    stored = msgspec.json.encode(to_json(kept))

    whole = reduce_all(from_json(msgspec.json.decode(stored)), events[cut:])

    assert whole == snapshot_of(entries, "r")
    assert msgspec.json.encode(to_json(kept)) == stored


@given(JOURNALS, st.data())
def test_events_told_again_change_nothing(entries: list[ev.Entry], data: st.DataObject) -> None:
    """Deliveries repeat, alone or as a whole stretch from an older place."""
    events = public(entries)
    snapshot, again = empty("r"), empty("r")
    for index, event in enumerate(events):
        snapshot = reduce(snapshot, event)
        since = data.draw(st.integers(0, index))
        again = reduce_all(again, events[since : index + 1])

        assert again == snapshot
        assert reduce(snapshot, events[since]) is snapshot


@given(JOURNALS)
def test_only_a_missing_event_is_a_gap(entries: list[ev.Entry]) -> None:
    """In a run that is followed there is none; leave out one event and the next tells."""
    events = public(entries)
    snapshots: list[RunSnapshot] = [empty("r")]
    for event in events:
        snapshots.append(reduce(snapshots[-1], event))

    assert not any(
        has_gap(seen.last_event_seq, event.prev_seq) for seen, event in zip(snapshots, events, strict=False)
    )
    assert all(
        has_gap(seen.last_event_seq, event.prev_seq)
        for seen, event in zip(snapshots, events[1:], strict=False)
    )


@given(JOURNALS)
def test_counts_and_places_agree_with_the_steps(entries: list[ev.Entry]) -> None:
    """The counter is the number of failed steps, ids are unique, the watermark is the last event's."""
    snapshot = snapshot_of(entries, "r")

    statuses = [step.status for step in snapshot.steps]
    assert snapshot.failed_steps == statuses.count("FAILED")
    assert len({step.step_id for step in snapshot.steps}) == len(statuses)
    assert snapshot.last_event_seq == max((event.run_seq for event in public(entries)), default=-1)


@given(JOURNALS)
def test_the_status_is_what_the_journal_folds_to(entries: list[ev.Entry]) -> None:
    """A run has one status, whichever way it is asked for."""
    entries = legal([ev.Entry(0, None, ev.ExecutionStarted(admission="queued")), *entries])

    assert snapshot_of(entries, "r").status == status.fold(entries).public_status
