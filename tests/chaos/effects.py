"""What bodies did to the world, held against the journals that tell of it.

A body may be executed more than once, since its process may die before the result is journaled. It must then
be another attempt under the same key, and never after its completion was journaled. Nothing of the product is
used here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg

from tests.chaos import orders
from tests.chaos.findings import Finding, Report
from tests.chaos.ledger import Line

#: Events are dated by the database, effects by their process: both read the clock of this machine.
CLOCK_S = 0.002

#: Completed steps that have bodies, that is, all but children.
_COMPLETED = """
SELECT c.run_id, c.run_seq, c.at, c.promise, c.attempt, s.function_name
  FROM facts AS c
  JOIN facts AS s ON s.run_key = c.run_key AND s.promise = c.promise AND s.type = 'InvokeScheduled'
 WHERE c.type = 'InvokeCompleted' AND s.kind <> 'workflow'
"""
_ENDED = "SELECT run_id FROM tidewheel_runs WHERE phase = 'Completed' AND parent_key IS NULL"


def effect_findings(
    connection: psycopg.Connection[Any], lines: Sequence[Line], report: Report
) -> Iterator[Finding]:
    """Yield what is wrong with how often bodies were executed, when, and as whom."""
    report.executions = len(lines)
    times = Counter((line.name, line.key) for line in lines)
    report.repeated = Counter(name for (name, _), count in times.items() if count > 1)
    for (key, attempt), count in Counter((line.key, line.attempt) for line in lines).items():
        if count > 1:
            what = f"attempt {attempt} of {key} was executed {count} times"
            yield Finding("an_attempt_is_executed_once", _root(key), None, what)
    keys: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for line in lines:
        keys[_root(line.run_id)][line.name].add(line.key)
    for run_id, bodies in keys.items():
        for name, known in bodies.items():
            if len(known) > 1:
                yield Finding("a_step_keeps_its_key", run_id, None, f"{name} had the keys {sorted(known)}")
    for (run_id,) in connection.execute(_ENDED):
        missing = orders.bodies_of(run_id) - keys[run_id].keys()
        if missing:
            yield Finding("every_effect_was_had", run_id, None, f"never executed: {sorted(missing)}")
    yield from _completion_findings(connection, lines)


def _completion_findings(connection: psycopg.Connection[Any], lines: Sequence[Line]) -> Iterator[Finding]:
    executed = {(line.key, line.attempt) for line in lines}
    completed: dict[str, float] = {}
    for run_id, run_seq, at, promise, attempt, _ in connection.execute(_COMPLETED):
        key = f"{_root(run_id)}:{promise}"
        completed[key] = at / 1_000_000
        if (key, attempt) not in executed:
            what = f"attempt {attempt} of {key} is completed, and was never executed"
            yield Finding("what_is_completed_was_executed", run_id, run_seq, what)
    for line in lines:
        if line.at > completed.get(line.key, line.at) + CLOCK_S:
            what = f"attempt {line.attempt} of {line.key} was begun after the step was completed"
            yield Finding("what_is_completed_is_not_executed", line.run_id, None, what)


def row_findings(connection: psycopg.Connection[Any]) -> Iterator[Finding]:
    """Yield what is wrong with the rows of transactional steps: one for each that is completed."""
    rows = Counter(key for (key,) in connection.execute("SELECT key FROM shop_rows"))
    completed = {
        f"{_root(run_id)}:{promise}"
        for run_id, _, _, promise, _, function_name in connection.execute(_COMPLETED)
        if function_name == "book"
    }
    for key in sorted(completed | rows.keys()):
        if rows[key] != (key in completed):
            what = f"{key} has {rows[key]} rows, and {'a' if key in completed else 'no'} result"
            yield Finding("a_row_commits_with_its_result", _root(key), None, what)


def _root(run_id: str) -> str:
    """Return the run that a child, or a step's key, belongs to."""
    return run_id.partition(":")[0]
