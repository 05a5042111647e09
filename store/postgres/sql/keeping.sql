-- What the keeper looks for and puts off, who is alive, and what is deleted. Rows that are due are claimed with
-- SKIP LOCKED: any number of keepers share the work, and none of them waits for an append.

-- name: next_at
-- When the next thing is due; null if nothing is. Each part reads one end of one index.
SELECT min(at), coalesce(%(now)s::bigint, tidewheel_now_v1())
  FROM (SELECT min(wake_at) AS at FROM tidewheel_runs WHERE wake_at IS NOT NULL
        UNION ALL
        SELECT min(due_at) FROM tidewheel_timers
        UNION ALL
        SELECT min(due_at) FROM tidewheel_steps WHERE due_at IS NOT NULL) AS due;

-- name: due_runs
-- Runs that nobody looked after in time, the longest waiting first.
SELECT run_key, namespace, run_id, queue, strikes, hints
  FROM tidewheel_runs
 WHERE wake_at <= %(now)s
 ORDER BY wake_at
 LIMIT %(limit_max)s
   FOR UPDATE SKIP LOCKED;

-- name: put_off_runs
UPDATE tidewheel_runs AS run
   SET wake_at = later.wake_at, hints = later.hints
  FROM unnest(%(run_keys)s::bytea[], %(wake_ats)s::bigint[], %(hints)s::bigint[])
    AS later(run_key, wake_at, hints)
 WHERE run.run_key = later.run_key;

-- name: due_timers
SELECT timer.run_key, timer.path, timer.fire_at, run.namespace, run.run_id, run.queue, run.strikes > 0,
       run.parked IS NOT NULL
  FROM tidewheel_timers AS timer
  JOIN tidewheel_runs AS run ON run.run_key = timer.run_key
 WHERE timer.due_at <= %(now)s
 ORDER BY timer.due_at
 LIMIT %(limit_max)s
   FOR UPDATE OF timer SKIP LOCKED;

-- name: put_off_timers
UPDATE tidewheel_timers AS timer
   SET due_at = later.due_at
  FROM unnest(%(run_keys)s::bytea[], %(paths)s::text[], %(due_ats)s::bigint[]) AS later(run_key, path, due_at)
 WHERE timer.run_key = later.run_key AND timer.path = later.path;

-- name: due_steps
-- Steps that somebody has to look at, with their runs and whether their owners are alive.
SELECT step.run_key, run.namespace, run.run_id, run.queue,
       coalesce((SELECT worker.alive_until > %(now)s FROM tidewheel_workers AS worker
                  WHERE worker.worker_id = step.owner), false),
       to_json(step)::text
  FROM tidewheel_steps AS step
  JOIN tidewheel_runs AS run ON run.run_key = step.run_key
 WHERE step.due_at <= %(now)s
 ORDER BY step.due_at
 LIMIT %(limit_max)s
   FOR UPDATE OF step SKIP LOCKED;

-- name: put_off_steps
UPDATE tidewheel_steps AS step
   SET due_at = later.due_at, hints = later.hints
  FROM unnest(%(run_keys)s::bytea[], %(paths)s::text[], %(due_ats)s::bigint[], %(hints)s::bigint[])
    AS later(run_key, path, due_at, hints)
 WHERE step.run_key = later.run_key AND step.path = later.path;

-- name: register
-- Announce a worker, or what it has now.
INSERT INTO tidewheel_workers
      (worker_id, namespace, host, pid, began, queues, workflows, started_at, alive_until)
SELECT worker_id, namespace, host, pid, began, queues, workflows, started_at, alive_until
  FROM json_populate_record(NULL::tidewheel_workers, %(worker)s::json)
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
   SET alive_until = coalesce(%(now)s::bigint, tidewheel_now_v1()) + %(lease)s
 WHERE worker_id = %(worker_id)s
RETURNING worker_id;

-- name: delete_workers
DELETE FROM tidewheel_workers
 WHERE worker_id = ANY (%(worker_ids)s);

-- name: runs_of_dead
-- A run whose worker is dead has to be looked after. They are locked before any step, and in the order of their keys,
-- as appends lock them.
UPDATE tidewheel_runs AS run
   SET wake_at = coalesce(%(now)s::bigint, tidewheel_now_v1()), hints = 0
  FROM (SELECT run_key
          FROM tidewheel_runs
         WHERE owner = ANY (%(worker_ids)s) AND parked IS NULL
         ORDER BY run_key
           FOR UPDATE) AS dead
 WHERE run.run_key = dead.run_key;

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
   AND NOT EXISTS (SELECT FROM tidewheel_workers WHERE worker_id = owners.owner)
   AND EXISTS (SELECT FROM tidewheel_runs AS run
                WHERE run.owner = owners.owner AND run.wake_at IS NULL AND run.parked IS NULL)
 ORDER BY owner;

-- name: steps_of_dead
-- What dead workers were executing is due now. Steps that nobody shall execute stay as they are. They are
-- locked in the order in which appends lock them, so that the two never wait for each other in a circle.
UPDATE tidewheel_steps AS step
   SET due_at = coalesce(%(now)s::bigint, tidewheel_now_v1()), hints = 0
  FROM (SELECT run_key, path
          FROM tidewheel_steps
         WHERE owner = ANY (%(worker_ids)s) AND NOT abandoned AND state <> 'parked'
         ORDER BY run_key, path
           FOR UPDATE) AS dead
 WHERE step.run_key = dead.run_key AND step.path = dead.path;

-- name: retire_runs
SELECT tidewheel_retire_runs_v2(%(namespace)s, %(ended_before)s, %(limit_max)s::int);

-- name: retire_partitions
SELECT tidewheel_retire_partitions_v2(%(namespace)s, %(ended_before)s);

-- name: make_partitions
SELECT tidewheel_make_partitions_v2(coalesce(%(now)s::bigint, tidewheel_now_v1()), %(days)s::int, %(ahead)s::int);
