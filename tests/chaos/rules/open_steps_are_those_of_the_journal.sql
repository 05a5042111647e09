-- Whatever the current segment has scheduled and not settled is open in one place: the run's row, or a row of its own.
-- It is there as the journal has it, and nothing else is.
WITH journaled AS (
    SELECT s.run_key, s.run_id, s.promise, s.kind, s.function_name, s.run_seq AS scheduled_seq, l.attempt,
           CASE WHEN l.type IS NULL THEN 'scheduled'
                WHEN l.type = 'InvokeStarted' THEN 'started'
                WHEN l.retry_at IS NULL THEN 'parked'
                ELSE 'retrying' END AS state
      FROM facts AS s
      JOIN tidewheel_runs AS r ON r.run_key = s.run_key
      LEFT JOIN LATERAL (SELECT l.type, l.attempt, l.retry_at
                           FROM facts AS l
                          WHERE l.run_key = s.run_key
                            AND l.promise = s.promise
                            AND l.type IN ('InvokeStarted', 'InvokeRetrying')
                          ORDER BY l.run_seq DESC
                          LIMIT 1) AS l ON true
     WHERE s.type = 'InvokeScheduled'
       AND s.run_seq >= r.segment_seq
       AND r.ended_at IS NULL
       AND NOT EXISTS (SELECT 1
                         FROM facts AS d
                        WHERE d.run_key = s.run_key
                          AND d.promise = s.promise
                          AND d.type IN ('InvokeCompleted', 'StepSkipped')))
SELECT run_id, min(scheduled_seq) AS run_seq, format('step %s is in %s', path, string_agg(place, ' and in ')) AS what
  FROM open_steps
 GROUP BY run_key, run_id, path
HAVING count(*) > 1
UNION ALL
SELECT o.run_id, o.scheduled_seq, format('step %s is in %s, and not open in the journal', o.path, o.place)
  FROM open_steps AS o
 WHERE NOT EXISTS (SELECT 1 FROM journaled AS j WHERE j.run_key = o.run_key AND j.promise = o.path)
UNION ALL
SELECT j.run_id, j.scheduled_seq, format('step %s is open in the journal, and nowhere else', j.promise)
  FROM journaled AS j
 WHERE NOT EXISTS (SELECT 1 FROM open_steps AS o WHERE o.run_key = j.run_key AND o.path = j.promise)
UNION ALL
SELECT j.run_id, j.scheduled_seq, format('step %s is %s in the journal, and %s in %s', j.promise,
              ROW(j.kind, j.function_name, j.scheduled_seq, j.state, j.attempt),
              ROW(o.kind, o.function_name, o.scheduled_seq, o.state, o.attempt, o.told), o.place)
  FROM journaled AS j
  JOIN open_steps AS o ON o.run_key = j.run_key AND o.path = j.promise
 WHERE (o.kind, o.function_name, o.scheduled_seq, o.state, o.attempt, o.told)
       IS DISTINCT FROM (j.kind, j.function_name, j.scheduled_seq, j.state, coalesce(j.attempt, 0), j.attempt IS NOT NULL);
