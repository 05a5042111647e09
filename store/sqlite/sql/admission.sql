-- The limits of queues, and the runs that count in them. A start reads them in its own transaction, which began with
-- BEGIN IMMEDIATE: nobody else counts, admits or starts meanwhile.

-- name: load
-- The limit of a queue, how many of its runs are under way and how many are queued.
SELECT namespace, queue, max_running, max_pending, overload, pause_s,
       (SELECT count(*) FROM tidewheel_runs AS run
         WHERE run.place = 'running' AND run.namespace = limited.namespace AND run.queue = limited.queue),
       (SELECT count(*) FROM tidewheel_runs AS run
         WHERE run.place = 'queued' AND run.namespace = limited.namespace AND run.queue = limited.queue)
  FROM tidewheel_admission AS limited
 WHERE namespace = ? AND queue = ?;

-- name: loads
-- As above, for each limit of a namespace.
SELECT namespace, queue, max_running, max_pending, overload, pause_s,
       (SELECT count(*) FROM tidewheel_runs AS run
         WHERE run.place = 'running' AND run.namespace = limited.namespace AND run.queue = limited.queue),
       (SELECT count(*) FROM tidewheel_runs AS run
         WHERE run.place = 'queued' AND run.namespace = limited.namespace AND run.queue = limited.queue)
  FROM tidewheel_admission AS limited
 WHERE namespace = ?
 ORDER BY queue;

-- name: put
INSERT INTO tidewheel_admission (namespace, queue, max_running, max_pending, overload, pause_s, updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (namespace, queue) DO UPDATE
   SET max_running = excluded.max_running,
       max_pending = excluded.max_pending,
       overload = excluded.overload,
       pause_s = excluded.pause_s,
       updated_at = excluded.updated_at;

-- name: count_open
-- The open runs of a queue count in its new limit; child runs do not.
UPDATE tidewheel_runs
   SET place = 'running'
 WHERE namespace = ? AND queue = ? AND ended_at IS NULL AND place IS NULL AND parent_key IS NULL
   AND phase NOT IN ('Pending', 'Approved');

-- name: remove
DELETE FROM tidewheel_admission
 WHERE namespace = ? AND queue = ?;

-- name: queues
-- Queues in which runs wait, and how many of each may be admitted: as many as one likes where there is no limit.
SELECT waiting.namespace, waiting.queue,
       limited.max_running - (SELECT count(*) FROM tidewheel_runs AS run
                               WHERE run.place = 'running' AND run.namespace = waiting.namespace
                                 AND run.queue = waiting.queue)
  FROM (SELECT DISTINCT namespace, queue FROM tidewheel_runs WHERE place = 'queued') AS waiting
  LEFT JOIN tidewheel_admission AS limited
    ON limited.namespace = waiting.namespace AND limited.queue = waiting.queue;

-- name: oldest
-- The runs of a queue that wait, the oldest first, as far as their time has come.
SELECT run_id
  FROM tidewheel_runs
 WHERE place = 'queued' AND namespace = ? AND queue = ? AND (admit_at IS NULL OR admit_at <= ?)
 ORDER BY run_key
 LIMIT ?;
