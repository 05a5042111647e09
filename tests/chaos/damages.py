"""Damage to journals, to what the workload wants, and to effects."""

from __future__ import annotations

import zlib
from typing import Any, TypeAlias

import psycopg

from tests.chaos.damage import (
    CHILD,
    ERRAND,
    ORDER,
    OTHER,
    Row,
    add,
    edit,
    journal_of,
    key_of,
    last_seq,
    noticed_by,
    rewind,
    rewrite,
    row_with,
    run,
    seq_of,
)
from tests.chaos.ledger import Line

Connection: TypeAlias = psycopg.Connection[Any]
Lines: TypeAlias = list[Line]


# Bytes


@noticed_by("checksum")
def flip_a_bit(connection: Connection, lines: Lines) -> Lines:
    """Change one byte of a row, as a bad disk would."""
    run(
        connection,
        "UPDATE tidewheel_journal SET data = set_byte(data, 3, get_byte(data, 3) # 1)"
        " WHERE run_key = %s AND first_seq = %s",
        *(key_of(connection, ORDER), _long_row(journal_of(connection, ORDER), connection).first_seq),
    )
    return lines


@noticed_by("event_is_json")
def write_nonsense(connection: Connection, lines: Lines) -> Lines:
    """Put something that is no JSON into a row, with the checksum that it has."""
    _write(connection, b"nonsense")
    return lines


@noticed_by("event_is_json")
def write_one_event_by_itself(connection: Connection, lines: Lines) -> Lines:
    """Put an event into a row without the list that it belongs in."""
    _write(connection, b'{"type": "ExecutionResumed"}')
    return lines


@noticed_by("event_is_json")
def write_no_events(connection: Connection, lines: Lines) -> Lines:
    """Let a row have no events at all."""
    _write(connection, b"[]")
    return lines


@noticed_by("event_is_json")
def write_an_event_without_type(connection: Connection, lines: Lines) -> Lines:
    """Let nobody know what an event is."""
    _write(connection, b'[{"type": "InvokeStarted", "promise_id": "0", "attempt": 1}, {"promise_id": "0"}]')
    return lines


# The journal's shape


@noticed_by("journal_has_its_run")
def forget_a_row(connection: Connection, lines: Lines) -> Lines:
    """Delete a run's row and keep its journal."""
    run(connection, "DELETE FROM tidewheel_runs WHERE run_id = %s", ERRAND)
    return lines


@noticed_by("sequence_has_no_hole")
def lose_some_events(connection: Connection, lines: Lines) -> Lines:
    """Delete a row from the middle."""
    journal = journal_of(connection, ORDER)
    journal.remove(_long_row(journal, connection))
    rewrite(connection, ORDER, journal)
    return lines


@noticed_by("sequence_has_no_hole")
def lose_the_first_events(connection: Connection, lines: Lines) -> Lines:
    """Delete a row from the beginning."""
    rewrite(connection, ORDER, journal_of(connection, ORDER)[1:])
    return lines


@noticed_by("sequence_has_no_hole")
def lose_the_last_events(connection: Connection, lines: Lines) -> Lines:
    """Delete a row from the end."""
    rewrite(connection, ORDER, journal_of(connection, ORDER)[:-1])
    return lines


@noticed_by("sequence_has_no_hole")
def lose_a_journal(connection: Connection, lines: Lines) -> Lines:
    """Delete all of a run's events."""
    run(connection, "DELETE FROM tidewheel_journal WHERE run_key = %s", key_of(connection, ERRAND))
    return lines


@noticed_by("sequence_has_no_hole")
def lose_an_event(connection: Connection, lines: Lines) -> Lines:
    """Take an event out of its row."""
    journal = journal_of(connection, ORDER)
    _long_row(journal, connection).events.pop()
    rewrite(connection, ORDER, journal)
    return lines


@noticed_by("sequence_has_no_hole")
def slip_an_event_in(connection: Connection, lines: Lines) -> Lines:
    """Put an event into a row that has no number for it."""
    journal = journal_of(connection, ORDER)
    journal[-1].events.insert(0, {"type": "TimeRecorded", "promise_id": "77"})
    rewrite(connection, ORDER, journal)
    return lines


@noticed_by("sequence_has_no_hole")
def lose_an_event_and_its_number(connection: Connection, lines: Lines) -> Lines:
    """Take the first event out of its row, which then begins after it."""
    journal = journal_of(connection, ORDER)
    row = _long_row(journal, connection)
    del row.events[0]
    row.first_seq += 1
    rewrite(connection, ORDER, journal)
    return lines


@noticed_by("sequence_has_no_hole")
def number_events_twice(connection: Connection, lines: Lines) -> Lines:
    """Let a row end with the number that the next one begins with."""
    journal = journal_of(connection, ORDER)
    row = _long_row(journal, connection)
    row.events.append({"type": "TimeRecorded", "promise_id": "77"})
    row.last_seq += 1
    rewrite(connection, ORDER, journal)
    return lines


@noticed_by("sequence_has_no_hole")
def let_the_row_lag(connection: Connection, lines: Lines) -> Lines:
    """Let the run's row know an event less than the journal has."""
    run(connection, "UPDATE tidewheel_runs SET last_seq = last_seq - 1 WHERE run_id = %s", ORDER)
    return lines


@noticed_by("segments_begin_with_their_start")
def start_again(connection: Connection, lines: Lines) -> Lines:
    """Start a run that has been started."""
    add(connection, ERRAND, "ExecutionStarted", 3, input=[1])
    return lines


@noticed_by("nothing_follows_the_end")
def end_twice(connection: Connection, lines: Lines) -> Lines:
    """Let the run end again."""
    add(connection, ERRAND, "ExecutionCompleted", last_seq(connection, ERRAND) + 1, result={"ok": 1})
    return lines


@noticed_by("nothing_follows_the_end")
def signal_the_dead(connection: Connection, lines: Lines) -> Lines:
    """Journal a fact after the end."""
    end = last_seq(connection, ERRAND) + 1
    add(connection, ERRAND, "SignalDelivered", end, signal_name="late", delivery_id=9)
    return lines


@noticed_by("row_says_how_it_ended")
def say_failed(connection: Connection, lines: Lines) -> Lines:
    """Let the row say that a completed run failed."""
    run(connection, "UPDATE tidewheel_runs SET phase = 'Failed' WHERE run_id = %s", ERRAND)
    return lines


@noticed_by("row_says_how_it_ended")
def reopen(connection: Connection, lines: Lines) -> Lines:
    """Let the row say that an ended run goes on."""
    run(
        connection,
        "UPDATE tidewheel_runs SET phase = 'Running', ended_at = NULL WHERE run_id = %s",
        ERRAND,
    )
    return lines


# Steps


@noticed_by("nothing_is_journaled_twice")
def complete_twice(connection: Connection, lines: Lines) -> Lines:
    """Journal the completion of a step again."""
    seq = seq_of(connection, ORDER, "InvokeCompleted")
    add(connection, ORDER, "InvokeCompleted", seq + 1, promise_id="0", attempt=1, result={"ok": 5})
    return lines


@noticed_by("nothing_is_journaled_twice")
def schedule_twice(connection: Connection, lines: Lines) -> Lines:
    """Journal the schedule of a step again."""
    seq = seq_of(connection, ORDER, "InvokeScheduled")
    add(connection, ORDER, "InvokeScheduled", seq + 1, promise_id="0", function_name="price", kind="function")
    return lines


@noticed_by("nothing_is_journaled_twice")
def fire_twice(connection: Connection, lines: Lines) -> Lines:
    """Journal that a timer fired again."""
    seq = seq_of(connection, ORDER, "TimerFired")
    add(connection, ORDER, "TimerFired", seq + 1, promise_id=_timer(connection))
    return lines


@noticed_by("steps_follow_their_schedule")
def start_what_nobody_wants(connection: Connection, lines: Lines) -> Lines:
    """Journal the start of a step that was never scheduled."""
    add(connection, ORDER, "InvokeStarted", 5, promise_id="77", attempt=1)
    return lines


@noticed_by("steps_follow_their_schedule")
def fire_what_nobody_set(connection: Connection, lines: Lines) -> Lines:
    """Journal that a timer fired which was never set."""
    add(connection, ORDER, "TimerFired", 5, promise_id="77")
    return lines


@noticed_by("attempts_rise_by_one")
def skip_an_attempt(connection: Connection, lines: Lines) -> Lines:
    """Let the first attempt be the second."""
    edit(connection, ORDER, seq_of(connection, ORDER, "InvokeStarted"), attempt=2)
    return lines


@noticed_by("ends_name_the_current_attempt")
def complete_another_attempt(connection: Connection, lines: Lines) -> Lines:
    """Let a completion be of an attempt that nobody started."""
    edit(connection, ORDER, seq_of(connection, ORDER, "InvokeCompleted"), attempt=2)
    return lines


@noticed_by("ends_name_the_current_attempt")
def complete_what_was_lost(connection: Connection, lines: Lines) -> Lines:
    """Let a completion be of an attempt that was given up before: a zombie that was not refused."""
    seq = seq_of(connection, ORDER, "InvokeCompleted")
    lost = {"error": {"type": "WorkerLost", "message": "gone"}, "retry_at": "2026-01-01T00:00:00Z"}
    add(connection, ORDER, "InvokeRetrying", seq, promise_id="0", failed_attempt=1, **lost)
    return lines


@noticed_by("nothing_follows_a_completion")
def start_what_is_done(connection: Connection, lines: Lines) -> Lines:
    """Start a step that is completed."""
    seq = seq_of(connection, ORDER, "InvokeCompleted")
    add(connection, ORDER, "InvokeStarted", seq + 1, promise_id="0", attempt=2)
    return lines


@noticed_by("nothing_follows_a_completion")
def cancel_what_fired(connection: Connection, lines: Lines) -> Lines:
    """Cancel a timer that has fired."""
    seq = seq_of(connection, ORDER, "TimerFired")
    add(connection, ORDER, "TimerCancelled", seq + 1, promise_id=_timer(connection))
    return lines


@noticed_by("timers_are_not_early")
def fire_early(connection: Connection, lines: Lines) -> Lines:
    """Let a timer be due a minute after it fired."""
    journal = journal_of(connection, ORDER)
    row_with(journal, seq_of(connection, ORDER, "TimerFired")).at -= 60_000_000
    rewrite(connection, ORDER, journal)
    return lines


@noticed_by("signals_are_received_as_delivered")
def receive_another_signal(connection: Connection, lines: Lines) -> Lines:
    """Let the code get a delivery that never came."""
    edit(connection, ORDER, seq_of(connection, ORDER, "SignalReceived"), delivery_id=77)
    return lines


@noticed_by("signals_are_received_as_delivered")
def receive_twice(connection: Connection, lines: Lines) -> Lines:
    """Let the code get a delivery again."""
    seq = seq_of(connection, ORDER, "SignalReceived")
    add(connection, ORDER, "SignalReceived", seq + 1, promise_id="77", signal_name="paid", delivery_id=1)
    return lines


@noticed_by("a_signal_arrives_once")
def deliver_twice(connection: Connection, lines: Lines) -> Lines:
    """Let the one signal that was sent arrive again."""
    add(connection, ERRAND, "SignalDelivered", 3, signal_name="paid", delivery_id=1)
    return lines


# Parents and children


@noticed_by("children_and_parents_agree")
def tell_the_parent_something_else(connection: Connection, lines: Lines) -> Lines:
    """Let the parent have another result than its child."""
    edit(connection, CHILD, last_seq(connection, CHILD), result={"ok": {"parcel": 0}})
    return lines


@noticed_by("children_and_parents_agree")
def have_a_child_nobody_asked_for(connection: Connection, lines: Lines) -> Lines:
    """Let a run be the child of a run that never asked for it."""
    run(connection, "UPDATE tidewheel_runs SET run_id = %s WHERE run_id = %s", f"{ORDER}:1", ERRAND)
    return lines


# What the workload wants


@noticed_by("every_run_has_ended")
def get_stuck(connection: Connection, lines: Lines) -> Lines:
    """Let a run stop before its end: nobody owes it anything."""
    rewind(connection, ERRAND, last_seq(connection, ERRAND))
    return lines


@noticed_by("no_run_is_lost")
def lose_a_run(connection: Connection, lines: Lines) -> Lines:
    """Delete a run with all that it has."""
    key = key_of(connection, OTHER)
    for table in ("runs", "journal", "outbox", "facts_seen", "step_ids"):
        run(connection, f"DELETE FROM tidewheel_{table} WHERE run_key = %s", key)  # noqa: S608 - our own names
    return lines


@noticed_by("no_run_is_lost")
def lose_a_child(connection: Connection, lines: Lines) -> Lines:
    """Delete a child with all that it has."""
    key = key_of(connection, CHILD)
    for table in ("runs", "journal", "outbox", "facts_seen", "step_ids"):
        run(connection, f"DELETE FROM tidewheel_{table} WHERE run_key = %s", key)  # noqa: S608 - our own names
    return lines


@noticed_by("no_run_is_invented")
def invent_a_run(connection: Connection, lines: Lines) -> Lines:
    """Let there be a run that nobody started."""
    run(connection, "UPDATE tidewheel_runs SET run_id = 'errand-000009' WHERE run_id = %s", ERRAND)
    return lines


@noticed_by("runs_come_to_their_result")
def come_to_something_else(connection: Connection, lines: Lines) -> Lines:
    """Let a run return what another one should."""
    edit(connection, ERRAND, last_seq(connection, ERRAND), result={"ok": {"price": 3}})
    return lines


@noticed_by("runs_come_to_their_result")
def fail_falsely(connection: Connection, lines: Lines) -> Lines:
    """Let a run fail that had to succeed."""
    edit(connection, ERRAND, last_seq(connection, ERRAND), type="ExecutionFailed")
    run(connection, "UPDATE tidewheel_runs SET phase = 'Failed' WHERE run_id = %s", ERRAND)
    return lines


# Effects


@noticed_by("an_attempt_is_executed_once")
def execute_an_attempt_twice(connection: Connection, lines: Lines) -> Lines:
    """Let a body be executed twice as the same attempt."""
    return [*lines, lines[0]]


@noticed_by("a_step_keeps_its_key")
def execute_under_another_key(connection: Connection, lines: Lines) -> Lines:
    """Let a body be executed again under another key: whoever has to refuse a repetition cannot."""
    return [*lines, lines[0]._replace(key=f"{ERRAND}:9", attempt=2)]


@noticed_by("every_effect_was_had")
def have_no_effect(connection: Connection, lines: Lines) -> Lines:
    """Let a body never be executed."""
    return [line for line in lines if line.name != "label"]


@noticed_by("what_is_completed_was_executed")
def complete_what_never_was(connection: Connection, lines: Lines) -> Lines:
    """Let only another attempt than the completed one be executed."""
    return [line._replace(attempt=2) if line.name == "book" else line for line in lines]


@noticed_by("what_is_completed_is_not_executed")
def execute_what_is_completed(connection: Connection, lines: Lines) -> Lines:
    """Let a body be executed again after its completion was journaled."""
    return [*lines, lines[0]._replace(attempt=2, at=lines[0].at + 3_600)]


@noticed_by("a_row_commits_with_its_result")
def lose_a_transactional_row(connection: Connection, lines: Lines) -> Lines:
    """Lose what a transactional step wrote."""
    run(connection, "DELETE FROM shop_rows")
    return lines


@noticed_by("a_row_commits_with_its_result")
def repeat_a_transactional_row(connection: Connection, lines: Lines) -> Lines:
    """Let a transactional step write twice."""
    run(connection, "INSERT INTO shop_rows SELECT key, 2 FROM shop_rows")
    return lines


@noticed_by("a_row_commits_with_its_result")
def keep_a_row_without_result(connection: Connection, lines: Lines) -> Lines:
    """Let a row stay of an attempt that came to nothing."""
    run(connection, "INSERT INTO shop_rows VALUES ('order-000004:99', 1)")
    return lines


def _timer(connection: Connection) -> str:
    """Return the promise of the order's timer."""
    seq = seq_of(connection, ORDER, "TimerFired")
    row = row_with(journal_of(connection, ORDER), seq)
    return str(row.events[seq - row.first_seq]["promise_id"])


def _write(connection: Connection, data: bytes) -> None:
    """Put bytes into a row of the order's journal, with the checksum that they have."""
    row = _long_row(journal_of(connection, ORDER), connection)
    run(
        connection,
        "UPDATE tidewheel_journal SET data = %s, checksum = %s WHERE run_key = %s AND first_seq = %s",
        *(data, zlib.crc32(data), key_of(connection, ORDER), row.first_seq),
    )


def _long_row(journal: list[Row], connection: Connection) -> Row:
    """Return a row from the middle of the order's journal that has several events, whatever came when."""
    return row_with(journal, seq_of(connection, ORDER, "JoinSetCreated"))
