-- What the keeper looks for and puts off, who is alive, and what is deleted. Each write is in a transaction
-- that began with BEGIN IMMEDIATE, so that two keepers never claim the same thing.

-- name: next_at
-- When the next thing is due; null if nothing is. Each part reads one end of one index.
SELECT min(at)
  FROM (SELECT min(wake_at) AS at FROM tidewheel_runs WHERE wake_at IS NOT NULL
        UNION ALL
        SELECT min(due_at) FROM tidewheel_timers
        UNION ALL
        SELECT min(due_at) FROM tidewheel_steps WHERE due_at IS NOT NULL);

-- name: due_runs
-- Runs that nobody looked after in time, the longest waiting first.
SELECT run_key, namespace, run_id, queue, strikes, hints
  FROM tidewheel_runs
 WHERE wake_at <= ?
 ORDER BY wake_at
 LIMIT ?;

-- name: put_off_run
UPDATE tidewheel_runs
   SET wake_at = ?, hints = ?
 WHERE run_key = ?;

-- name: due_timers
SELECT timer.run_key, timer.path, timer.fire_at, run.namespace, run.run_id, run.queue, run.strikes > 0,
       run.parked IS NOT NULL
  FROM tidewheel_timers AS timer
  JOIN tidewheel_runs AS run ON run.run_key = timer.run_key
 WHERE timer.due_at <= ?
 ORDER BY timer.due_at
 LIMIT ?;

-- name: put_off_timer
UPDATE tidewheel_timers
   SET due_at = ?
 WHERE run_key = ? AND path = ?;

-- name: due_steps
-- Steps that somebody has to look at, with their runs and whether their owners are alive.
SELECT step.run_key, run.namespace, run.run_id, run.queue,
       coalesce((SELECT worker.alive_until > ? FROM tidewheel_workers AS worker
                  WHERE worker.worker_id = step.owner), 0),
       step.path, step.kind, step.function_name, step.queue, step.dispatch, step.state,
       step.attempt, step.scheduled_seq, step.scheduled_at, step.owner, step.abandoned, step.due_at,
       step.hints, step.start_by, step.close_by, step.heartbeat_s, step.beat, step.step_id,
       step.key_part, step.logical_attempt, step.told, step.failed, step.signal_id
  FROM tidewheel_steps AS step
  JOIN tidewheel_runs AS run ON run.run_key = step.run_key
 WHERE step.due_at <= ?
 ORDER BY step.due_at
 LIMIT ?;

-- name: put_off_step
UPDATE tidewheel_steps
   SET due_at = ?, hints = ?
 WHERE run_key = ? AND path = ?;

-- name: register
-- Announce a worker, or what it has now.
INSERT INTO tidewheel_workers
      (worker_id, namespace, host, pid, began, queues, workflows, started_at, alive_until)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (worker_id) DO UPDATE
   SET namespace = excluded.namespace,
       host = excluded.host,
       pid = excluded.pid,
       began = excluded.began,
       queues = excluded.queues,
       workflows = excluded.workflows,
       started_at = excluded.started_at,
       alive_until = excluded.alive_until;

-- name: renew
UPDATE tidewheel_workers
   SET alive_until = ?
 WHERE worker_id = ?;

-- name: workers
SELECT worker_id, namespace, host, pid, began, queues, workflows, started_at, alive_until
  FROM tidewheel_workers
 ORDER BY started_at, worker_id;

-- name: alive_owners
-- Those owners of a run and of its open steps that are believed to be alive.
SELECT worker_id
  FROM tidewheel_workers
 WHERE alive_until > :now
   AND worker_id IN (SELECT owner FROM tidewheel_runs WHERE run_key = :run_key
                     UNION ALL
                     SELECT owner FROM tidewheel_steps WHERE run_key = :run_key);

-- name: delete_worker
DELETE FROM tidewheel_workers
 WHERE worker_id = ?;

-- name: runs_of_dead
-- A run whose worker is dead has to be looked after.
UPDATE tidewheel_runs
   SET wake_at = ?, hints = 0
 WHERE owner = ? AND parked IS NULL;

-- name: lost_owners
-- Who owns runs and is not registered. From one owner to the next: there may be many runs of each. Runs that somebody
-- is about to look after, or that nobody shall, are left out.
WITH RECURSIVE owners (owner) AS (
    SELECT min(owner) FROM tidewheel_runs WHERE owner IS NOT NULL
    UNION ALL
    SELECT (SELECT min(owner) FROM tidewheel_runs WHERE owner > owners.owner AND owner IS NOT NULL)
      FROM owners
     WHERE owners.owner IS NOT NULL)
SELECT owner
  FROM owners
 WHERE owner IS NOT NULL
   AND owner NOT IN (SELECT worker_id FROM tidewheel_workers)
   AND EXISTS (SELECT 1 FROM tidewheel_runs AS run
                WHERE run.owner = owners.owner AND run.wake_at IS NULL AND run.parked IS NULL)
 ORDER BY owner;

-- name: steps_of_dead
-- What a dead worker was executing is due now. Steps that nobody shall execute stay as they are.
UPDATE tidewheel_steps
   SET due_at = ?, hints = 0
 WHERE owner = ? AND NOT abandoned AND state <> 'parked';

-- name: ended
-- Runs that ended before a time, the earliest first. A run is kept while one of its tree is there: started
-- again under its id, it would meet its old children. Their ids begin with its own and a colon.
SELECT run.run_key
  FROM tidewheel_runs AS run
 WHERE run.namespace = ? AND run.ended_at < ?
   AND NOT EXISTS (SELECT 1 FROM tidewheel_runs AS part
                    WHERE part.namespace = run.namespace
                      AND part.run_id > run.run_id || ':' AND part.run_id < run.run_id || ';')
 ORDER BY run.ended_at
 LIMIT ?;
