-- Events belong to a run that is there.
SELECT encode(e.run_key, 'hex') AS run_id, min(e.run_seq) AS run_seq, count(*) || ' events of no run' AS what
  FROM tidewheel_events AS e
 WHERE NOT EXISTS (SELECT 1 FROM tidewheel_runs AS r WHERE r.run_key = e.run_key)
 GROUP BY e.run_key;
