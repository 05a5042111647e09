-- A child was asked for by its parent, and comes to what its parent was told.
SELECT c.run_id, e.run_seq,
       CASE WHEN s.run_seq IS NULL THEN 'nobody asked for it'
            ELSE format('it came to %s, its parent has %s', e.result, d.result) END AS what
  FROM tidewheel_runs AS c
  LEFT JOIN facts AS s
       ON s.run_key = c.parent_key AND s.type = 'InvokeScheduled' AND s.kind = 'workflow'
      AND s.promise = substring(c.run_id FROM position(':' IN c.run_id) + 1)
  LEFT JOIN facts AS e ON e.run_key = c.run_key AND e.type = 'ExecutionCompleted'
  LEFT JOIN facts AS d ON d.run_key = s.run_key AND d.promise = s.promise AND d.type = 'InvokeCompleted'
 WHERE position(':' IN c.run_id) > 0
   AND (s.run_seq IS NULL OR (e.run_seq IS NOT NULL AND e.result::jsonb IS DISTINCT FROM d.result::jsonb));
