-- A run ends once, and nothing is journaled after.
SELECT l.run_id, l.run_seq, format('%s after %s at %s', l.type, f.type, f.run_seq) AS what
  FROM facts AS f
  JOIN facts AS l ON l.run_key = f.run_key AND l.run_seq > f.run_seq
 WHERE f.is_end;
