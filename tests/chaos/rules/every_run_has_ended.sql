-- Nothing is stuck: asked when everything was given its time.
SELECT r.run_id, r.last_seq AS run_seq,
       format('%s, wake-up %s (%s hints), parked: %s (%s)', r.phase,
              coalesce(to_timestamp(r.wake_at / 1000000.0)::text, 'not owed'), r.hints, r.parked, r.parked_reason) AS what
  FROM tidewheel_runs AS r
 WHERE r.ended_at IS NULL;
