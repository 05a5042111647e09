-- What rows of the journal that publish something say of the run before them, as plain columns.
CREATE TEMPORARY TABLE contexts ON COMMIT DROP AS
WITH readable AS MATERIALIZED (
    SELECT j.run_key, r.run_id, j.first_seq, j.last_seq, j.public
      FROM tidewheel_journal AS j
      JOIN tidewheel_runs AS r ON r.run_key = j.run_key
     WHERE j.public IS NOT NULL
       AND NOT EXISTS (SELECT 1
                         FROM unreadable AS u
                        WHERE u.run_key = j.run_key AND u.first_seq = j.first_seq AND u.rule = 'context_is_json'))
SELECT run_key,
       run_id,
       first_seq,
       last_seq,
       (c ->> 0)::bigint AS prev_seq,
       c ->> 1 AS version,
       c ->> 2 AS started_id,
       c -> 3 AS steps
  FROM readable
 CROSS JOIN LATERAL (SELECT convert_from(public, 'UTF8')::json AS c) AS parsed;
