-- What the event bus is owed of a run are rows of its journal that publish something, each of them once.
--
-- The lowest ranges of a run go away as they are published, so what comes before the lowest is not looked at.
SELECT p.run_id, p.run_seq, format('owed %s times', count(o.first_seq)) AS what
  FROM published AS p
  JOIN (SELECT run_key, min(first_seq) AS lowest FROM tidewheel_outbox GROUP BY run_key) AS l
       ON l.run_key = p.run_key AND p.run_seq >= l.lowest
  LEFT JOIN tidewheel_outbox AS o
       ON o.run_key = p.run_key AND p.run_seq BETWEEN o.first_seq AND o.last_seq
 GROUP BY p.run_key, p.run_id, p.run_seq
HAVING count(o.first_seq) <> 1
UNION ALL
SELECT coalesce(r.run_id, encode(o.run_key, 'hex')), o.first_seq,
       format('owed from %s to %s, which is no row that publishes something', o.first_seq, o.last_seq)
  FROM tidewheel_outbox AS o
  LEFT JOIN tidewheel_runs AS r ON r.run_key = o.run_key
 WHERE NOT EXISTS (SELECT 1
                     FROM tidewheel_journal AS j
                    WHERE j.run_key = o.run_key
                      AND j.first_seq = o.first_seq
                      AND j.last_seq = o.last_seq
                      AND j.public IS NOT NULL);
