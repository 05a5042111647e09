-- Each public event names the one before it, the first one none, and the run's row the last one.
SELECT run_id, run_seq, format('it names %s, before it is %s', prev_seq, before) AS what
  FROM (SELECT run_id, run_seq, prev_seq,
               lag(run_seq) OVER (PARTITION BY run_key ORDER BY run_seq) AS before
          FROM facts
         WHERE is_public) AS chain
 WHERE prev_seq IS DISTINCT FROM before
UNION ALL
SELECT r.run_id, r.prev_seq, format('the row names %s, the last one is %s', r.prev_seq, l.last)
  FROM tidewheel_runs AS r
  LEFT JOIN (SELECT run_key, max(run_seq) AS last FROM facts WHERE is_public GROUP BY run_key) AS l
       ON l.run_key = r.run_key
 WHERE r.prev_seq IS DISTINCT FROM l.last;
