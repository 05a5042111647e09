-- How far projections have read runs. The statements over users' own tables are made of their columns.

-- name: columns
-- The columns of a table, none if it is not there.
SELECT name FROM pragma_table_info(?);

-- name: mark
SELECT run.run_key, mark.last_event_seq
  FROM tidewheel_runs AS run
  LEFT JOIN tidewheel_projections AS mark ON mark.run_key = run.run_key AND mark.projection = ?
 WHERE run.namespace = ? AND run.run_id = ?;

-- name: put_mark
INSERT INTO tidewheel_projections (run_key, projection, last_event_seq)
VALUES (?, ?, ?)
ON CONFLICT (run_key, projection) DO UPDATE SET last_event_seq = excluded.last_event_seq;

-- name: forget
DELETE FROM tidewheel_projections
 WHERE projection = ?;
