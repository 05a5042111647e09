"""The events of journals, for statements that ask for events and not for the rows that have them."""

from __future__ import annotations

#: Begins a statement: ``events`` has a row for each event of each journal.
EVENTS = """
WITH events AS (
    SELECT run_key, first_seq + place - 1 AS run_seq, at, event ->> 'type' AS type, event AS data
      FROM tidewheel_journal
     CROSS JOIN LATERAL json_array_elements(convert_from(data, 'UTF8')::json)
      WITH ORDINALITY AS told(event, place))
"""
