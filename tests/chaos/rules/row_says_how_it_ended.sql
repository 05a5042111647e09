-- The run's row and the journal agree on whether the run has ended, and how.
SELECT r.run_id,
       f.run_seq,
       format('the row says %s, ended at %s; the journal says %s', r.phase, r.ended_at, f.type) AS what
  FROM tidewheel_runs AS r
  LEFT JOIN facts AS f ON f.run_key = r.run_key AND f.is_end
 WHERE coalesce('Execution' || r.phase = f.type, f.type IS NULL) IS NOT TRUE
    OR (r.phase IN ('Completed', 'Failed', 'Cancelled')) <> (f.type IS NOT NULL)
    OR (r.ended_at IS NOT NULL) <> (f.type IS NOT NULL);
