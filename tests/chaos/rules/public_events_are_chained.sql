-- A row that publishes something names the public event before it, the first one none, and the run's row the last one.
SELECT c.run_id, c.first_seq AS run_seq, format('it names %s, before it is %s', c.prev_seq, b.before) AS what
  FROM contexts AS c
  LEFT JOIN LATERAL (SELECT max(p.run_seq) AS before
                       FROM published AS p
                      WHERE p.run_key = c.run_key AND p.run_seq < c.first_seq) AS b ON true
 WHERE c.prev_seq IS DISTINCT FROM b.before
UNION ALL
SELECT r.run_id, r.prev_seq, format('the row names %s, the last one is %s', r.prev_seq, l.last)
  FROM tidewheel_runs AS r
  LEFT JOIN (SELECT run_key, max(run_seq) AS last FROM published GROUP BY run_key) AS l
       ON l.run_key = r.run_key
 WHERE r.prev_seq IS DISTINCT FROM l.last;
