-- A run whose row says that it has promises has some, and no other run has any.
SELECT coalesce(r.run_id, encode(p.run_key, 'hex')) AS run_id, NULL::bigint AS run_seq,
       format('%s promises, and the row says %s', coalesce(p.count, 0), coalesce(r.has_promises::text, 'nothing')) AS what
  FROM tidewheel_runs AS r
  FULL JOIN (SELECT run_key, count(*) AS count FROM tidewheel_promises GROUP BY run_key) AS p
       ON p.run_key = r.run_key
 WHERE r.has_promises IS DISTINCT FROM (p.count IS NOT NULL);
