-- A completion, and a failure, is of the attempt that was started last before it, and that has not failed before.
SELECT f.run_id, f.run_seq,
       format('%s of attempt %s of promise %s; started last: %s', f.type, f.attempt, f.promise, s.attempt) AS what
  FROM facts AS f
  LEFT JOIN LATERAL (SELECT max(s.attempt) AS attempt
                       FROM facts AS s
                      WHERE s.run_key = f.run_key
                        AND s.promise = f.promise
                        AND s.type = 'InvokeStarted'
                        AND s.run_seq < f.run_seq) AS s ON true
 WHERE f.type IN ('InvokeCompleted', 'InvokeRetrying')
   AND (s.attempt IS DISTINCT FROM f.attempt
        OR EXISTS (SELECT 1
                     FROM facts AS b
                    WHERE b.run_key = f.run_key
                      AND b.promise = f.promise
                      AND b.type = 'InvokeRetrying'
                      AND b.attempt = f.attempt
                      AND b.run_seq < f.run_seq));
