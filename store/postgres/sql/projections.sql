-- How far projections have read runs. The statements over users' own tables are made of their columns.

-- name: lock
-- Until the end of the transaction nobody else writes the rows of this projection.
SELECT pg_advisory_xact_lock(hashtextextended('tidewheel projection ' || %(projection)s, 0));

-- name: columns
-- The columns of a table, none if it is not there.
SELECT attname::text
  FROM pg_attribute
 WHERE attrelid = to_regclass(quote_ident(%(name)s)) AND attnum > 0 AND NOT attisdropped;

-- name: marks
SELECT ask.place, run.run_key, mark.last_event_seq
  FROM unnest(%(namespaces)s::text[], %(run_ids)s::text[]) WITH ORDINALITY AS ask(namespace, run_id, place)
 CROSS JOIN LATERAL (
       SELECT run_key FROM tidewheel_runs WHERE namespace = ask.namespace AND run_id = ask.run_id LIMIT 1) AS run
  LEFT JOIN LATERAL (
       SELECT last_event_seq FROM tidewheel_projections
        WHERE run_key = run.run_key AND projection = %(projection)s
        LIMIT 1) AS mark ON true;

-- name: put_marks
INSERT INTO tidewheel_projections (run_key, projection, last_event_seq)
SELECT run_key, %(projection)s, seq
  FROM unnest(%(run_keys)s::bytea[], %(seqs)s::bigint[]) AS mark(run_key, seq)
ON CONFLICT (run_key, projection) DO UPDATE SET last_event_seq = excluded.last_event_seq;

-- name: forget
DELETE FROM tidewheel_projections
 WHERE projection = %(projection)s;
