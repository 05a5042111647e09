-- What the event bus is owed of a run are ranges that do not overlap and leave no public event out.
--
-- The lowest ranges of a run go away as they are published, so what comes before the lowest is not looked at.
SELECT f.run_id, f.run_seq, format('owed %s times', count(o.first_seq)) AS what
  FROM facts AS f
  JOIN (SELECT run_key, min(first_seq) AS lowest FROM tidewheel_outbox GROUP BY run_key) AS l
       ON l.run_key = f.run_key AND f.run_seq >= l.lowest
  LEFT JOIN tidewheel_outbox AS o
       ON o.run_key = f.run_key AND f.run_seq BETWEEN o.first_seq AND o.last_seq
 WHERE f.is_public
 GROUP BY f.run_key, f.run_id, f.run_seq
HAVING count(o.first_seq) <> 1;
