-- The events that publish something, read as the table of public events in the pages for users has it.
--
-- What a step publishes depends on what it has published in its logical attempt; an event of the run is published once,
-- those that repeat once per signal. Whether the rows of the journal say so too is for rules.
CREATE TEMPORARY TABLE published ON COMMIT DROP AS
WITH steps AS (
    SELECT run_key, run_id, run_seq, promise, type,
           type = 'InvokeRetrying' AND retry_at IS NULL AS is_parked,
           result -> 'error' IS NOT NULL AS is_error,
           count(*) FILTER (WHERE type = 'InvokeScheduled') OVER earlier > 0 AS is_scheduled,
           count(*) FILTER (WHERE type IN ('InvokeCompleted', 'StepSkipped')) OVER earlier > 0 AS is_settled,
           count(*) FILTER (WHERE type = 'StepRetryRequested') OVER earlier AS again
      FROM facts
     WHERE type IN ('InvokeScheduled', 'InvokeStarted', 'InvokeRetrying', 'InvokeCompleted', 'StepSkipped',
                    'StepRetryRequested')
    WINDOW earlier AS (PARTITION BY run_key, promise ORDER BY run_seq
                       ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)),
attempts AS (
    SELECT *,
           count(*) FILTER (WHERE type = 'InvokeStarted') OVER earlier > 0 AS is_told,
           count(*) FILTER (WHERE is_parked) OVER earlier > 0 AS has_failed
      FROM steps
    WINDOW earlier AS (PARTITION BY run_key, promise, again ORDER BY run_seq
                       ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)),
of_runs AS (
    SELECT run_key, run_id, run_seq,
           CASE WHEN type = 'RunAdmitted' OR (type = 'ExecutionStarted' AND admission = 'now') THEN 'RunStarted'
                WHEN is_end OR type = 'RunApproved' THEN type
                WHEN type IN ('RunPaused', 'RunResumed', 'SignalAccepted', 'SignalRejected')
                THEN type || coalesce(' signal ' || signal_id, ' event ' || run_seq)
                WHEN type = 'Recorded'
                     AND name NOT IN ('RunApproved', 'RunStarted', 'StepStarted', 'StepCompleted', 'StepFailed',
                                      'StepSkipped', 'SignalAccepted', 'SignalRejected', 'RunPaused', 'RunResumed',
                                      'RunCompleted', 'RunFailed', 'RunCancelled')
                THEN 'event ' || run_seq
           END AS once
      FROM facts),
numbered AS (
    SELECT *, row_number() OVER (PARTITION BY run_key, once ORDER BY run_seq) AS number
      FROM of_runs
     WHERE once IS NOT NULL)
SELECT run_key, run_id, run_seq
  FROM attempts
 WHERE is_scheduled
   AND NOT is_settled
   AND CASE type WHEN 'InvokeStarted' THEN NOT is_told
                 WHEN 'InvokeRetrying' THEN is_parked AND NOT has_failed
                 WHEN 'InvokeCompleted' THEN NOT (is_error AND has_failed)
                 ELSE type = 'StepSkipped' END
UNION ALL
SELECT run_key, run_id, run_seq
  FROM numbered
 WHERE number = 1;
