-- The journals as plain columns: what the rules beside this file read.
--
-- Made once for all of them, since every event's JSON is parsed for it. Events that cannot be parsed are not in
-- it; whoever makes it has listed them in `unreadable`, and reports them.
CREATE TEMPORARY TABLE facts ON COMMIT DROP AS
SELECT e.run_key,
       r.run_id,
       e.run_seq,
       e.at,
       e.type,
       e.prev_seq,
       e.public IS NOT NULL AS is_public,
       d ->> 'promise_id' AS promise,
       coalesce(d ->> 'attempt', d ->> 'failed_attempt')::bigint AS attempt,
       d ->> 'kind' AS kind,
       d ->> 'function_name' AS function_name,
       d ->> 'signal_name' AS signal_name,
       (d ->> 'delivery_id')::bigint AS delivery_id,
       (d ->> 'fire_at')::timestamptz AS fire_at,
       d -> 'result' AS result,
       e.type IN ('ExecutionCompleted', 'ExecutionFailed', 'ExecutionCancelled') AS is_end
  FROM tidewheel_events AS e
  JOIN tidewheel_runs AS r ON r.run_key = e.run_key
 CROSS JOIN LATERAL (SELECT convert_from(e.data, 'UTF8')::json AS d) AS parsed
 WHERE NOT EXISTS (SELECT 1 FROM unreadable AS u WHERE u.run_key = e.run_key AND u.run_seq = e.run_seq);
