-- A promise is scheduled once, completed once, fires once, is cancelled once.
SELECT run_id, max(run_seq) AS run_seq, format('%s %s of promise %s', count(*), kind, promise) AS what
  FROM (SELECT run_id, run_seq, promise,
               CASE type WHEN 'StepSkipped' THEN 'InvokeCompleted' ELSE type END AS kind
          FROM facts
         WHERE type IN ('InvokeScheduled', 'InvokeCompleted', 'StepSkipped', 'TimerScheduled', 'TimerFired',
                        'TimerCancelled', 'PromiseCreated', 'PromiseResolved', 'SignalReceived',
                        'RandomGenerated', 'TimeRecorded')) AS once
 GROUP BY run_id, promise, kind
HAVING count(*) > 1;
