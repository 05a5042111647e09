-- A run that has ended has no step, timer or promise, is nobody's, wakes nobody, and is not set aside.
SELECT r.run_id, NULL::bigint AS run_seq, o.what || ' of a run that has ended' AS what
  FROM tidewheel_runs AS r
  JOIN (SELECT run_key, format('step %s, %s, in %s,', path, state, place) AS what FROM open_steps
        UNION ALL
        SELECT run_key, 'timer ' || path FROM tidewheel_timers
        UNION ALL
        SELECT run_key, 'promise ' || name FROM tidewheel_promises
        UNION ALL
        SELECT run_key, 'the owner ' || owner FROM tidewheel_runs WHERE owner IS NOT NULL
        UNION ALL
        SELECT run_key, 'a wake-up' FROM tidewheel_runs WHERE wake_at IS NOT NULL
        UNION ALL
        SELECT run_key, 'a mark that it is parked' FROM tidewheel_runs WHERE parked IS NOT NULL
       ) AS o ON o.run_key = r.run_key
 WHERE r.ended_at IS NOT NULL;
