-- The limits of queues, and the runs that count in them. What a start has to know of them comes with its locks
-- (tidewheel_lock_v2); here is what operators and keepers ask.

-- name: put
INSERT INTO tidewheel_admission (namespace, queue, max_running, max_pending, overload, pause_s, updated_at)
VALUES (%(namespace)s, %(queue)s, %(max_running)s, %(max_pending)s, %(overload)s, %(pause_s)s,
        coalesce(%(now)s::bigint, tidewheel_now_v1()))
    ON CONFLICT (namespace, queue) DO UPDATE
   SET max_running = excluded.max_running,
       max_pending = excluded.max_pending,
       overload = excluded.overload,
       pause_s = excluded.pause_s,
       updated_at = excluded.updated_at;

-- name: count_open
-- The open runs of a queue count in its new limit; child runs do not. They are locked in the order of their keys, as
-- appends lock them, and whoever remembers one of them finds its revision changed.
UPDATE tidewheel_runs AS run
   SET place = 'running', revision = run.revision + 1
  FROM (SELECT run_key
          FROM tidewheel_runs
         WHERE namespace = %(namespace)s AND queue = %(queue)s AND ended_at IS NULL AND place IS NULL
           AND parent_key IS NULL AND phase NOT IN ('Pending', 'Approved')
         ORDER BY run_key
           FOR UPDATE) AS under_way
 WHERE run.run_key = under_way.run_key;

-- name: remove
DELETE FROM tidewheel_admission
 WHERE namespace = %(namespace)s AND queue = %(queue)s
RETURNING queue;

-- name: loads
-- The limits of a namespace, how many runs of each queue are under way and how many are queued.
SELECT namespace, queue, max_running, max_pending, overload, pause_s,
       (SELECT count(*) FROM tidewheel_runs AS run
         WHERE run.place = 'running' AND run.namespace = limited.namespace AND run.queue = limited.queue),
       (SELECT count(*) FROM tidewheel_runs AS run
         WHERE run.place = 'queued' AND run.namespace = limited.namespace AND run.queue = limited.queue)
  FROM tidewheel_admission AS limited
 WHERE namespace = %(namespace)s
 ORDER BY queue;

-- name: waiting
-- Queued runs whose time has come, of each queue the oldest, and as many as it has room for: as one likes where there is
-- no limit. From one queue to the next: many may wait in each. Nothing is locked; whoever admits them does.
WITH RECURSIVE queues (namespace, queue) AS (
    (SELECT namespace, queue FROM tidewheel_runs WHERE place = 'queued' ORDER BY namespace, queue LIMIT 1)
    UNION ALL
    SELECT following.namespace, following.queue
      FROM queues
      CROSS JOIN LATERAL (SELECT run.namespace, run.queue
                            FROM tidewheel_runs AS run
                           WHERE run.place = 'queued' AND (run.namespace, run.queue) > (queues.namespace, queues.queue)
                           ORDER BY run.namespace, run.queue
                           LIMIT 1) AS following)
SELECT queues.namespace, oldest.run_id, queues.queue
  FROM queues
  LEFT JOIN tidewheel_admission AS limited ON limited.namespace = queues.namespace AND limited.queue = queues.queue
  CROSS JOIN LATERAL (SELECT run.run_id, run.run_key
                        FROM tidewheel_runs AS run
                       WHERE run.place = 'queued' AND run.namespace = queues.namespace AND run.queue = queues.queue
                         AND (run.admit_at IS NULL OR run.admit_at <= coalesce(%(now)s::bigint, tidewheel_now_v1()))
                       ORDER BY run.run_key
                       LIMIT CASE WHEN limited.queue IS NULL THEN %(batch_max)s::bigint
                                  ELSE greatest(0, least(%(batch_max)s::bigint, limited.max_running - (
                                       SELECT count(*) FROM tidewheel_runs AS under_way
                                        WHERE under_way.place = 'running' AND under_way.namespace = queues.namespace
                                          AND under_way.queue = queues.queue)))
                             END) AS oldest
 ORDER BY queues.namespace, queues.queue, oldest.run_key
 LIMIT %(batch_max)s;
