-- The steps that rows have open, wherever they are: in the run's row, or in rows of their own.
CREATE TEMPORARY TABLE open_steps ON COMMIT DROP AS
SELECT r.run_key,
       r.run_id,
       'its run''s row' AS place,
       s ->> 'path' AS path,
       coalesce(s ->> 'kind', 'function') AS kind,
       s ->> 'function_name' AS function_name,
       CASE WHEN s ->> 'attempt' IS NULL THEN 'scheduled' ELSE 'started' END AS state,
       coalesce(s ->> 'attempt', '0')::bigint AS attempt,
       (s ->> 'scheduled_seq')::bigint AS scheduled_seq,
       coalesce(s ->> 'told', 'false')::boolean AS told
  FROM tidewheel_runs AS r
 CROSS JOIN LATERAL json_array_elements(r.inline_steps::json) AS inline(s)
UNION ALL
SELECT s.run_key, r.run_id, 'a row of its own', s.path, s.kind, s.function_name, s.state, s.attempt, s.scheduled_seq, s.told
  FROM tidewheel_steps AS s
  LEFT JOIN tidewheel_runs AS r ON r.run_key = s.run_key;
