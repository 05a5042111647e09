-- A timer fires when its time has come, by the clock that dates the events: the database's.
SELECT f.run_id, f.run_seq,
       format('fired at %s, due at %s', to_timestamp(f.at / 1000000.0), s.fire_at) AS what
  FROM facts AS f
  JOIN facts AS s ON s.run_key = f.run_key AND s.promise = f.promise AND s.type = 'TimerScheduled'
 WHERE f.type = 'TimerFired'
   AND f.at < (extract(epoch FROM s.fire_at) * 1000000)::bigint;
