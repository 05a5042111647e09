-- Events belong to a run that is there.
SELECT encode(j.run_key, 'hex') AS run_id, min(j.first_seq) AS run_seq,
       sum(j.last_seq - j.first_seq + 1) || ' events of no run' AS what
  FROM tidewheel_journal AS j
 WHERE NOT EXISTS (SELECT 1 FROM tidewheel_runs AS r WHERE r.run_key = j.run_key)
 GROUP BY j.run_key;
