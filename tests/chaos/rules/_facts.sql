-- The journals as plain columns, one row for each event: what the rules beside this file read.
--
-- Made once for all of them, since every event's JSON is parsed for it. Rows of the journal that cannot be parsed are
-- not in it; whoever makes it has listed them in `unreadable`, and reports them. They are left out before anything
-- is parsed. `first_seq` says which row an event is in.
CREATE TEMPORARY TABLE facts ON COMMIT DROP AS
WITH readable AS MATERIALIZED (
    SELECT j.run_key, r.run_id, j.first_seq, j.at, j.data
      FROM tidewheel_journal AS j
      JOIN tidewheel_runs AS r ON r.run_key = j.run_key
     WHERE NOT EXISTS (SELECT 1
                         FROM unreadable AS u
                        WHERE u.run_key = j.run_key AND u.first_seq = j.first_seq AND u.rule <> 'context_is_json'))
SELECT j.run_key,
       j.run_id,
       j.first_seq,
       j.first_seq + e.place - 1 AS run_seq,
       j.at,
       d ->> 'type' AS type,
       d ->> 'promise_id' AS promise,
       coalesce(d ->> 'attempt', d ->> 'failed_attempt')::bigint AS attempt,
       coalesce(d ->> 'logical_attempt', '1')::bigint AS logical_attempt,
       d ->> 'kind' AS kind,
       d ->> 'function_name' AS function_name,
       d ->> 'key' AS key,
       d ->> 'signal_name' AS signal_name,
       d ->> 'signal_id' AS signal_id,
       (d ->> 'delivery_id')::bigint AS delivery_id,
       (d ->> 'fire_at')::timestamptz AS fire_at,
       (d ->> 'retry_at')::timestamptz AS retry_at,
       d ->> 'version' AS version,
       coalesce(d ->> 'admission', 'now') AS admission,
       d ->> 'name' AS name,
       d -> 'result' AS result,
       d ->> 'type' IN ('ExecutionCompleted', 'ExecutionFailed', 'ExecutionCancelled') AS is_end
  FROM readable AS j
 CROSS JOIN LATERAL json_array_elements(convert_from(j.data, 'UTF8')::json) WITH ORDINALITY AS e(d, place);
