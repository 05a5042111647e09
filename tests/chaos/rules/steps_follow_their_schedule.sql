-- What happens to a step or a timer comes after it was asked for.
SELECT f.run_id, f.run_seq, f.type || ' of promise ' || coalesce(f.promise, 'none') || ', never asked for' AS what
  FROM facts AS f
 WHERE f.type IN ('InvokeStarted', 'InvokeCompleted', 'InvokeRetrying', 'TimerFired', 'TimerCancelled')
   AND NOT EXISTS (SELECT 1
                     FROM facts AS s
                    WHERE s.run_key = f.run_key
                      AND s.promise = f.promise
                      AND s.run_seq < f.run_seq
                      AND s.type = CASE WHEN f.type LIKE 'Timer%' THEN 'TimerScheduled' ELSE 'InvokeScheduled' END);
