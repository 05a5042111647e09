-- A completed step is neither started nor retried; a timer that fired or was cancelled does nothing more.
SELECT l.run_id, l.run_seq, format('%s of promise %s after %s', l.type, l.promise, f.type) AS what
  FROM facts AS f
  JOIN facts AS l ON l.run_key = f.run_key AND l.promise = f.promise AND l.run_seq > f.run_seq
 WHERE (f.type IN ('InvokeCompleted', 'StepSkipped') AND l.type IN ('InvokeStarted', 'InvokeRetrying'))
    OR (f.type = 'TimerFired' AND l.type = 'TimerCancelled')
    OR (f.type = 'TimerCancelled' AND l.type = 'TimerFired');
