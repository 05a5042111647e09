-- A context has the run as it was before its row: the version, the id of RunStarted, and of the open steps that the row
-- speaks of what they are called and what was published of them. It may have others that were open, as one of which
-- something was about to be written and then was not.
--
-- The first row has nothing before it but what the run is started with.
WITH versions AS (
    SELECT run_key, run_seq, version, lead(run_seq) OVER (PARTITION BY run_key ORDER BY run_seq) AS next_seq
      FROM facts
     WHERE type IN ('ExecutionStarted', 'ExecutionAwaiting') AND version IS NOT NULL),
begun AS (
    SELECT s.run_key, s.run_seq,
           left(encode(sha256(convert_to(s.run_id || '|RUN|1|RunStarted|' || v.version, 'UTF8')), 'hex'),
                32)::uuid::text AS started_id
      FROM (SELECT run_key, run_id, min(run_seq) AS run_seq
              FROM facts
             WHERE type = 'RunAdmitted' OR (type = 'ExecutionStarted' AND admission = 'now')
             GROUP BY run_key, run_id) AS s
      JOIN versions AS v
           ON v.run_key = s.run_key AND v.run_seq <= s.run_seq AND coalesce(v.next_seq > s.run_seq, true)),
said AS (
    SELECT c.run_key, c.run_id, c.first_seq, s ->> 0 AS promise, s ->> 1 AS id, s ->> 2 AS function_name,
           s ->> 3 AS key_part, (s ->> 4)::bigint AS logical_attempt, (s ->> 5)::boolean AS told,
           (s ->> 6)::boolean AS failed
      FROM contexts AS c
     CROSS JOIN LATERAL json_array_elements(c.steps) AS steps(s)),
named AS (
    SELECT c.run_key, c.first_seq, f.promise
      FROM contexts AS c
      JOIN facts AS f ON f.run_key = c.run_key AND f.first_seq = c.first_seq
     WHERE f.type IN ('InvokeStarted', 'InvokeRetrying', 'InvokeCompleted', 'StepSkipped')
     UNION
    SELECT run_key, first_seq, promise FROM said),
steps_before AS (
    SELECT DISTINCT c.run_key, c.run_id, c.first_seq, s.promise, coalesce(s.key, s.promise) AS id, s.function_name,
           s.logical_attempt,
           EXISTS (SELECT 1
                     FROM facts AS b
                    WHERE b.run_key = c.run_key
                      AND b.promise = s.promise
                      AND b.type = 'InvokeStarted'
                      AND b.run_seq < c.first_seq) AS told,
           EXISTS (SELECT 1
                     FROM facts AS b
                    WHERE b.run_key = c.run_key
                      AND b.promise = s.promise
                      AND b.type = 'InvokeRetrying'
                      AND b.retry_at IS NULL
                      AND b.run_seq < c.first_seq) AS failed
      FROM contexts AS c
      JOIN named AS n ON n.run_key = c.run_key AND n.first_seq = c.first_seq
      JOIN facts AS s
           ON s.run_key = n.run_key
          AND s.promise = n.promise
          AND s.type = 'InvokeScheduled'
          AND s.run_seq < c.first_seq
     WHERE NOT EXISTS (SELECT 1
                         FROM facts AS b
                        WHERE b.run_key = c.run_key
                          AND b.promise = s.promise
                          AND b.type IN ('InvokeCompleted', 'StepSkipped')
                          AND b.run_seq < c.first_seq))
SELECT c.run_id, c.first_seq AS run_seq, format('it says version %s, before it was %s', c.version, v.version) AS what
  FROM contexts AS c
  JOIN versions AS v
       ON v.run_key = c.run_key AND v.run_seq < c.first_seq AND coalesce(v.next_seq >= c.first_seq, true)
 WHERE c.version IS DISTINCT FROM v.version
UNION ALL
SELECT c.run_id, c.first_seq, format('it says that RunStarted is %s, it is %s', c.started_id, b.started_id)
  FROM contexts AS c
  LEFT JOIN begun AS b ON b.run_key = c.run_key AND b.run_seq < c.first_seq
 WHERE c.started_id IS DISTINCT FROM b.started_id
UNION ALL
SELECT r.run_id, NULL, format('the row says that RunStarted is %s, it is %s', r.started_id, b.started_id)
  FROM tidewheel_runs AS r
  LEFT JOIN begun AS b ON b.run_key = r.run_key
 WHERE r.started_id IS DISTINCT FROM b.started_id
UNION ALL
SELECT coalesce(s.run_id, t.run_id), coalesce(s.first_seq, t.first_seq),
       format('step %s: it says %s, it was %s', coalesce(s.promise, t.promise),
              ROW(t.id, t.function_name, t.key_part, t.logical_attempt, t.told, t.failed),
              ROW(s.id, s.function_name, s.id, s.logical_attempt, s.told, s.failed))
  FROM steps_before AS s
  FULL JOIN said AS t ON t.run_key = s.run_key AND t.first_seq = s.first_seq AND t.promise = s.promise
 WHERE (s.id, s.function_name, s.logical_attempt, s.told, s.failed)
       IS DISTINCT FROM (t.id, t.function_name, t.logical_attempt, t.told, t.failed)
    OR t.key_part NOT IN (t.id, t.id || '#' || t.promise);
