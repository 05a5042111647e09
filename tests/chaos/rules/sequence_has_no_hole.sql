-- A journal's numbers begin at 0 and rise by one, from row to row and within each, to the one that the run's row has.
SELECT r.run_id, NULL::bigint AS run_seq,
       format('from %s to %s; the row says %s', s.first, s.last, r.last_seq) AS what
  FROM tidewheel_runs AS r
  LEFT JOIN (SELECT run_key, min(first_seq) AS first, max(last_seq) AS last
               FROM tidewheel_journal
              GROUP BY run_key) AS s ON s.run_key = r.run_key
 WHERE s.first IS NULL OR s.first <> 0 OR s.last <> r.last_seq
UNION ALL
SELECT r.run_id, j.first_seq, format('a row begins with %s, the one before ends with %s', j.first_seq, j.before)
  FROM (SELECT run_key, first_seq, lag(last_seq) OVER (PARTITION BY run_key ORDER BY first_seq) AS before
          FROM tidewheel_journal) AS j
  JOIN tidewheel_runs AS r ON r.run_key = j.run_key
 WHERE j.first_seq <> j.before + 1
UNION ALL
SELECT f.run_id, f.first_seq, format('%s events from %s to %s', f.count, f.first_seq, j.last_seq)
  FROM (SELECT run_key, run_id, first_seq, count(*) AS count FROM facts GROUP BY run_key, run_id, first_seq) AS f
  JOIN tidewheel_journal AS j ON j.run_key = f.run_key AND j.first_seq = f.first_seq
 WHERE f.count <> j.last_seq - j.first_seq + 1;
