-- A journal's numbers begin at 0 and rise by one, to the one that the run's row has.
SELECT r.run_id,
       NULL::bigint AS run_seq,
       format('%s events, from %s to %s; the row says %s', s.count, s.first, s.last, r.last_seq) AS what
  FROM tidewheel_runs AS r
  LEFT JOIN (SELECT run_key, count(*) AS count, min(run_seq) AS first, max(run_seq) AS last
               FROM tidewheel_events
              GROUP BY run_key) AS s ON s.run_key = r.run_key
 WHERE s.count IS NULL OR s.first <> 0 OR s.last <> s.count - 1 OR s.last <> r.last_seq;
