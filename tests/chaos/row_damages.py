"""Damage to what is derived from journals: what the event bus is told, and what rows have open."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

import psycopg

from tests.chaos.damage import (
    ERRAND,
    ORDER,
    edit_context,
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

#: The step of an errand that its run's row has while it is executed.
PRICE = "0"


# Public events


@noticed_by("context_is_json")
def write_a_context_of_nonsense(connection: Connection, lines: Lines) -> Lines:
    """Put something that is no JSON where a row has what the run was before it."""
    run(
        connection,
        "UPDATE tidewheel_journal SET public = 'nonsense' WHERE run_key = %s AND first_seq = 0",
        key_of(connection, ORDER),
    )
    return lines


@noticed_by("context_is_json")
def lose_a_part_of_a_context(connection: Connection, lines: Lines) -> Lines:
    """Let a context lack its end."""
    journal = journal_of(connection, ORDER)
    context = journal[0].context
    assert context is not None
    context.pop()
    rewrite(connection, ORDER, journal)
    return lines


@noticed_by("public_events_are_marked")
def keep_an_event_to_oneself(connection: Connection, lines: Lines) -> Lines:
    """Let a row that publishes something not say so: nobody is told, and nobody owes it."""
    journal = journal_of(connection, ORDER)
    row = row_with(journal, seq_of(connection, ORDER, "InvokeStarted"))
    row.context, row.is_owed = None, False
    rewrite(connection, ORDER, journal)
    return lines


@noticed_by("public_events_are_marked")
def tell_of_nothing(connection: Connection, lines: Lines) -> Lines:
    """Let a row that publishes nothing say that it does."""
    journal = journal_of(connection, ORDER)
    row = row_with(journal, seq_of(connection, ORDER, "InvokeScheduled"))
    later = row_with(journal, seq_of(connection, ORDER, "InvokeStarted"))
    assert row.context is None
    assert later.context is not None
    row.context, row.is_owed = [*later.context[:3], [], []], True
    rewrite(connection, ORDER, journal)
    return lines


@noticed_by("public_events_are_chained")
def break_the_chain(connection: Connection, lines: Lines) -> Lines:
    """Let a public event name one that is not the one before it."""
    edit_context(connection, ORDER, last_seq(connection, ORDER), 0, to=0)
    return lines


@noticed_by("public_events_are_chained")
def begin_the_chain_again(connection: Connection, lines: Lines) -> Lines:
    """Let a public event name none, as if it were the first one."""
    edit_context(connection, ORDER, last_seq(connection, ORDER), 0, to=None)
    return lines


@noticed_by("public_events_are_chained")
def lose_the_end_of_the_chain(connection: Connection, lines: Lines) -> Lines:
    """Let the row not know the last public event."""
    run(connection, "UPDATE tidewheel_runs SET prev_seq = 0 WHERE run_id = %s", ORDER)
    return lines


@noticed_by("contexts_are_as_the_run_was")
def tell_of_another_version(connection: Connection, lines: Lines) -> Lines:
    """Let public events have the keys of another version."""
    edit_context(connection, ORDER, last_seq(connection, ORDER), 1, to="2")
    return lines


@noticed_by("contexts_are_as_the_run_was")
def tell_of_another_beginning(connection: Connection, lines: Lines) -> Lines:
    """Let public events hang under an event that there is not."""
    edit_context(connection, ORDER, last_seq(connection, ORDER), 2, to="00000000-0000-0000-0000-000000000000")
    return lines


@noticed_by("contexts_are_as_the_run_was")
def forget_how_it_began(connection: Connection, lines: Lines) -> Lines:
    """Let the run's row not know its first public event."""
    run(connection, "UPDATE tidewheel_runs SET started_id = NULL WHERE run_id = %s", ORDER)
    return lines


@noticed_by("contexts_are_as_the_run_was")
def tell_twice_that_a_step_began(connection: Connection, lines: Lines) -> Lines:
    """Let a context not know that the start of a step was published."""
    seq = seq_of(connection, ERRAND, "InvokeCompleted", -1)
    edit_context(connection, ERRAND, seq, 3, 0, 5, to=False)
    return lines


@noticed_by("contexts_are_as_the_run_was")
def take_a_step_for_failed(connection: Connection, lines: Lines) -> Lines:
    """Let a context say that the failure of a step was published."""
    edit_context(connection, ORDER, seq_of(connection, ORDER, "InvokeCompleted"), 3, 0, 6, to=True)
    return lines


@noticed_by("contexts_are_as_the_run_was")
def give_a_step_another_key(connection: Connection, lines: Lines) -> Lines:
    """Let public events of a step have the keys of another one."""
    edit_context(connection, ORDER, seq_of(connection, ORDER, "InvokeCompleted"), 3, 0, 3, to="9")
    return lines


@noticed_by("contexts_are_as_the_run_was")
def forget_an_open_step(connection: Connection, lines: Lines) -> Lines:
    """Let a context not know a step that its row completes: its completion is not published."""
    edit_context(connection, ORDER, seq_of(connection, ORDER, "InvokeCompleted"), 3, to=[])
    return lines


@noticed_by("public_events_are_owed_once")
def owe_less(connection: Connection, lines: Lines) -> Lines:
    """Forget what the event bus is owed of the run's end."""
    journal = journal_of(connection, ORDER)
    journal[-1].is_owed = False
    rewrite(connection, ORDER, journal)
    return lines


@noticed_by("public_events_are_owed_once")
def owe_nothing_in_the_middle(connection: Connection, lines: Lines) -> Lines:
    """Forget what the event bus is owed of a step, while it is owed what comes before and after."""
    journal = journal_of(connection, ORDER)
    row_with(journal, seq_of(connection, ORDER, "InvokeCompleted")).is_owed = False
    rewrite(connection, ORDER, journal)
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


@noticed_by("public_events_are_owed_once")
def owe_half_of_a_row(connection: Connection, lines: Lines) -> Lines:
    """Owe a range that has all that a row publishes, and is not the row's."""
    run(
        connection,
        "UPDATE tidewheel_outbox SET first_seq = first_seq + 1 WHERE run_key = %s AND last_seq = %s",
        *(key_of(connection, ORDER), last_seq(connection, ORDER)),
    )
    return lines


@noticed_by("public_events_are_owed_once")
def owe_what_publishes_nothing(connection: Connection, lines: Lines) -> Lines:
    """Owe a row that has nothing for the event bus."""
    journal = journal_of(connection, ORDER)
    row = row_with(journal, seq_of(connection, ORDER, "InvokeScheduled"))
    assert row.context is None
    row.is_owed = True
    rewrite(connection, ORDER, journal)
    return lines


# What is open


@noticed_by("ended_runs_have_nothing_open")
def leave_a_step(connection: Connection, lines: Lines) -> Lines:
    """Leave a step open."""
    _add_step(connection, ORDER, "started", 1)
    return lines


@noticed_by("ended_runs_have_nothing_open")
def leave_a_step_in_the_run(connection: Connection, lines: Lines) -> Lines:
    """Leave a step open in the run's row, where nothing keeps it from being left."""
    _let_be_inline(connection, _price(connection))
    return lines


@noticed_by("ended_runs_have_nothing_open")
def leave_a_timer(connection: Connection, lines: Lines) -> Lines:
    """Leave a timer set."""
    run(connection, "INSERT INTO tidewheel_timers VALUES (%s, '9', 1, 1)", key_of(connection, ORDER))
    return lines


@noticed_by("ended_runs_have_nothing_open")
def leave_a_promise(connection: Connection, lines: Lines) -> Lines:
    """Leave a promise that outsiders may keep."""
    _promise(connection, ORDER)
    run(connection, "UPDATE tidewheel_runs SET has_promises = true WHERE run_id = %s", ORDER)
    return lines


@noticed_by("promises_are_marked_in_their_run")
def forget_that_there_are_promises(connection: Connection, lines: Lines) -> Lines:
    """Let a run have a promise, and its row not say so: nobody would clear it."""
    be_in_the_middle(connection)
    _promise(connection, ERRAND)
    return lines


@noticed_by("promises_are_marked_in_their_run")
def tell_of_promises_that_there_are_not(connection: Connection, lines: Lines) -> Lines:
    """Let a run's row say that it has promises."""
    run(connection, "UPDATE tidewheel_runs SET has_promises = true WHERE run_id = %s", ORDER)
    return lines


@noticed_by("open_steps_are_those_of_the_journal")
def have_a_step_twice(connection: Connection, lines: Lines) -> Lines:
    """Let a step be in the run's row and in a row of its own."""
    be_in_the_middle(connection)
    _add_step(connection, ERRAND, "scheduled", 0)
    return lines


@noticed_by("open_steps_are_those_of_the_journal")
def have_a_step_twice_in_the_run(connection: Connection, lines: Lines) -> Lines:
    """Let the run's row have a step twice."""
    be_in_the_middle(connection)
    _let_be_inline(connection, *[_price(connection)] * 2)
    return lines


@noticed_by("open_steps_are_those_of_the_journal")
def have_a_step_nowhere(connection: Connection, lines: Lines) -> Lines:
    """Let nobody know that a step is to be executed."""
    be_in_the_middle(connection)
    _let_nothing_be_inline(connection)
    return lines


@noticed_by("open_steps_are_those_of_the_journal")
def keep_a_step_that_is_completed(connection: Connection, lines: Lines) -> Lines:
    """Let the run's row have a step still that has its result."""
    rewind(connection, ERRAND, last_seq(connection, ERRAND), _price(connection))
    return lines


@noticed_by("open_steps_are_those_of_the_journal")
def keep_a_row_of_a_step_that_is_completed(connection: Connection, lines: Lines) -> Lines:
    """Let a step that has its result have a row still."""
    rewind(connection, ERRAND, last_seq(connection, ERRAND))
    _add_step(connection, ERRAND, "started", 1)
    return lines


@noticed_by("open_steps_are_those_of_the_journal")
def have_a_step_that_nobody_scheduled(connection: Connection, lines: Lines) -> Lines:
    """Let the run's row have a step that is not in the journal."""
    be_in_the_middle(connection)
    _let_be_inline(connection, _price(connection), _price(connection) | {"path": "77"})
    return lines


@noticed_by("open_steps_are_those_of_the_journal")
def take_a_step_for_another(connection: Connection, lines: Lines) -> Lines:
    """Let the run's row have another function for a step than the journal."""
    be_in_the_middle(connection)
    _let_be_inline(connection, _price(connection) | {"function_name": "reserve"})
    return lines


@noticed_by("open_steps_are_those_of_the_journal")
def let_a_step_be_scheduled_elsewhere(connection: Connection, lines: Lines) -> Lines:
    """Let the run's row name another event that scheduled a step."""
    be_in_the_middle(connection)
    _let_be_inline(connection, _price(connection) | {"scheduled_seq": 0})
    return lines


@noticed_by("open_steps_are_those_of_the_journal")
def begin_a_step_in_secret(connection: Connection, lines: Lines) -> Lines:
    """Let the run's row know an attempt that the journal has not."""
    be_in_the_middle(connection)
    _let_be_inline(connection, _price(connection) | {"attempt": 1, "told": True})
    return lines


@noticed_by("open_steps_are_those_of_the_journal")
def tell_of_a_start_in_secret(connection: Connection, lines: Lines) -> Lines:
    """Let the run's row say that the start of a step was published, which it never was."""
    be_in_the_middle(connection)
    _let_be_inline(connection, _price(connection) | {"told": True})
    return lines


@noticed_by("open_steps_are_those_of_the_journal")
def park_a_step_in_secret(connection: Connection, lines: Lines) -> Lines:
    """Let a step's row say that it waits for an operator, of which the journal knows nothing."""
    be_in_the_middle(connection)
    _let_nothing_be_inline(connection)
    _add_step(connection, ERRAND, "parked", 0)
    return lines


def be_in_the_middle(connection: Connection) -> None:
    """Let the errand be as it was while its first step was executed, which its row had then: no damage."""
    rewind(connection, ERRAND, seq_of(connection, ERRAND, "InvokeStarted"), _price(connection))


def _price(connection: Connection) -> dict[str, Any]:
    """Return the errand's first step as its run's row had it."""
    return {
        "path": PRICE,
        "function_name": "price",
        "scheduled_seq": seq_of(connection, ERRAND, "InvokeScheduled"),
        "scheduled_at": "2026-01-01T00:00:00Z",
    }


def _promise(connection: Connection, run_id: str) -> None:
    """Let a run have a promise that outsiders may keep."""
    key = key_of(connection, run_id)
    run(connection, "INSERT INTO tidewheel_promises VALUES (%s, 'answer', '9', false)", key)


def _let_be_inline(connection: Connection, *steps: dict[str, Any]) -> None:
    """Let these be the steps that the errand's row has."""
    run(
        connection,
        "UPDATE tidewheel_runs SET inline_steps = %s, owner = 'w-1' WHERE run_id = %s",
        *(json.dumps(steps), ERRAND),
    )


def _let_nothing_be_inline(connection: Connection) -> None:
    """Let the errand's row have no steps."""
    run(connection, "UPDATE tidewheel_runs SET inline_steps = '[]', owner = NULL WHERE run_id = %s", ERRAND)


def _add_step(connection: Connection, run_id: str, state: str, attempt: int) -> None:
    """Let a run's first step have a row of its own."""
    seq = seq_of(connection, run_id, "InvokeScheduled")
    run(
        connection,
        "INSERT INTO tidewheel_steps (run_key, path, kind, function_name, queue, dispatch, state, attempt,"
        " scheduled_seq, scheduled_at, abandoned, hints, step_id, key_part, logical_attempt, told, failed)"
        " VALUES (%s, '0', 'function', 'price', 'default', 'inline', %s, %s, %s, 0, false, 0, '0', '0', 1,"
        " %s, false)",
        *(key_of(connection, run_id), state, attempt, seq, attempt > 0),
    )
