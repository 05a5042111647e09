-- A journal begins with ExecutionStarted; another one follows ExecutionContinued, and nothing else.
SELECT f.run_id, f.run_seq, f.type || ' after ' || coalesce(b.type, 'nothing') AS what
  FROM facts AS f
  LEFT JOIN facts AS b ON b.run_key = f.run_key AND b.run_seq = f.run_seq - 1
 WHERE (f.type = 'ExecutionStarted') <> (f.run_seq = 0 OR coalesce(b.type = 'ExecutionContinued', false));
