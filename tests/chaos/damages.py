"""The damages: what each rule of the checker is tried on."""

from __future__ import annotations

from typing import Any, TypeAlias

import psycopg

from tests.chaos.damage import (
    CHILD,
    ERRAND,
    ORDER,
    OTHER,
    add,
    edit,
    key_of,
    last_seq,
    noticed_by,
    run,
    seq_of,
)
from tests.chaos.ledger import Line

Connection: TypeAlias = psycopg.Connection[Any]
Lines: TypeAlias = list[Line]


# Bytes


@noticed_by("checksum")
def flip_a_bit(connection: Connection, lines: Lines) -> Lines:
    """Change one byte of one event, as a bad disk would."""
    run(
        connection,
        "UPDATE tidewheel_events SET data = set_byte(data, 3, get_byte(data, 3) # 1)"
        " WHERE run_key = %s AND run_seq = 4",
        key_of(connection, ORDER),
    )
    return lines


@noticed_by("event_is_json")
def write_nonsense(connection: Connection, lines: Lines) -> Lines:
    """Put something that is no JSON into an event, with the checksum that it has."""
    run(
        connection,
        "UPDATE tidewheel_events SET data = 'nonsense', checksum = 642448160"
        " WHERE run_key = %s AND run_seq = 4",
        key_of(connection, ORDER),
    )
    return lines


# The journal's shape


@noticed_by("journal_has_its_run")
def forget_a_row(connection: Connection, lines: Lines) -> Lines:
    """Delete a run's row and keep its journal."""
    run(connection, "DELETE FROM tidewheel_runs WHERE run_id = %s", ERRAND)
    return lines


@noticed_by("sequence_has_no_hole")
def lose_an_event(connection: Connection, lines: Lines) -> Lines:
    """Delete an event from the middle."""
    key = key_of(connection, ORDER)
    run(connection, "DELETE FROM tidewheel_events WHERE run_key = %s AND run_seq = 7", key)
    return lines


@noticed_by("sequence_has_no_hole")
def lose_the_first_event(connection: Connection, lines: Lines) -> Lines:
    """Delete an event from the beginning."""
    key = key_of(connection, ORDER)
    run(connection, "DELETE FROM tidewheel_events WHERE run_key = %s AND run_seq = 0", key)
    return lines


@noticed_by("sequence_has_no_hole")
def lose_a_journal(connection: Connection, lines: Lines) -> Lines:
    """Delete all of a run's events."""
    run(connection, "DELETE FROM tidewheel_events WHERE run_key = %s", key_of(connection, ERRAND))
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
    lost = {"type": "WorkerLost", "message": "gone"}
    add(connection, ORDER, "InvokeRetrying", seq, promise_id="0", failed_attempt=1, error=lost)
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
    run(
        connection,
        "UPDATE tidewheel_events SET at = at - 60000000 WHERE run_key = %s AND type = 'TimerFired'",
        key_of(connection, ORDER),
    )
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
    add(connection, ORDER, "SignalReceived", seq + 1, promise_id="77", signal_name="paid", delivery_id=0)
    return lines


@noticed_by("a_signal_arrives_once")
def deliver_twice(connection: Connection, lines: Lines) -> Lines:
    """Let the one signal that was sent arrive again."""
    add(connection, ERRAND, "SignalDelivered", 3, signal_name="paid", delivery_id=1)
    return lines


# Public events


@noticed_by("public_events_are_chained")
def break_the_chain(connection: Connection, lines: Lines) -> Lines:
    """Let a public event name one that is not the one before it."""
    run(
        connection,
        "UPDATE tidewheel_events SET prev_seq = prev_seq - 1 WHERE run_key = %s AND prev_seq > 0",
        key_of(connection, ORDER),
    )
    return lines


@noticed_by("public_events_are_chained")
def lose_the_end_of_the_chain(connection: Connection, lines: Lines) -> Lines:
    """Let the row not know the last public event."""
    run(connection, "UPDATE tidewheel_runs SET prev_seq = 0 WHERE run_id = %s", ORDER)
    return lines


@noticed_by("public_events_are_owed_once")
def owe_less(connection: Connection, lines: Lines) -> Lines:
    """Forget what the event bus is owed of the run's end."""
    run(
        connection,
        "DELETE FROM tidewheel_outbox WHERE run_key = %s AND first_seq ="
        " (SELECT max(first_seq) FROM tidewheel_outbox WHERE run_key = %s)",
        key_of(connection, ORDER),
        key_of(connection, ORDER),
    )
    return lines


@noticed_by("public_events_are_owed_once")
def owe_twice(connection: Connection, lines: Lines) -> Lines:
    """Let two rows owe the same events."""
    run(
        connection,
        "UPDATE tidewheel_outbox SET last_seq = last_seq + 5 WHERE run_key = %s AND first_seq = 0",
        key_of(connection, ORDER),
    )
    return lines


# Rows beside the journal


@noticed_by("ended_runs_have_nothing_open")
def leave_a_step(connection: Connection, lines: Lines) -> Lines:
    """Leave a step open."""
    run(
        connection,
        "INSERT INTO tidewheel_steps (run_key, path, kind, function_name, queue, dispatch, state, attempt,"
        " scheduled_seq, scheduled_at, abandoned, hints, step_id, key_part, logical_attempt, failed)"
        " VALUES (%s, '0', 'function', 'price', 'default', 'inline', 'started', 1, 2, 0, false, 0, '0', '0',"
        " 1, false)",
        key_of(connection, ORDER),
    )
    return lines


@noticed_by("ended_runs_have_nothing_open")
def leave_a_timer(connection: Connection, lines: Lines) -> Lines:
    """Leave a timer set."""
    run(connection, "INSERT INTO tidewheel_timers VALUES (%s, '9', 1, 1)", key_of(connection, ORDER))
    return lines


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
    key = key_of(connection, ERRAND)
    run(connection, "DELETE FROM tidewheel_events WHERE run_key = %s AND type = 'ExecutionCompleted'", key)
    run(
        connection,
        "UPDATE tidewheel_runs SET phase = 'Running', ended_at = NULL, last_seq = last_seq - 1,"
        " prev_seq = last_seq - 4 WHERE run_key = %s",
        key,
    )
    return lines


@noticed_by("no_run_is_lost")
def lose_a_run(connection: Connection, lines: Lines) -> Lines:
    """Delete a run with all that it has."""
    key = key_of(connection, OTHER)
    for table in ("runs", "events", "outbox", "facts_seen", "step_ids"):
        run(connection, f"DELETE FROM tidewheel_{table} WHERE run_key = %s", key)  # noqa: S608 - our own names
    return lines


@noticed_by("no_run_is_lost")
def lose_a_child(connection: Connection, lines: Lines) -> Lines:
    """Delete a child with all that it has."""
    key = key_of(connection, CHILD)
    for table in ("runs", "events", "outbox", "facts_seen", "step_ids"):
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
    key, end = key_of(connection, ERRAND), last_seq(connection, ERRAND)
    run(
        connection,
        "UPDATE tidewheel_events SET type = 'ExecutionFailed' WHERE run_key = %s AND run_seq = %s",
        key,
        end,
    )
    run(connection, "UPDATE tidewheel_runs SET phase = 'Failed' WHERE run_key = %s", key)
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
    found = connection.execute(
        "SELECT convert_from(data, 'UTF8')::json ->> 'promise_id' FROM tidewheel_events"
        " WHERE run_key = %s AND type = 'TimerFired'",
        (key_of(connection, ORDER),),
    ).fetchone()
    assert found is not None
    return str(found[0])
