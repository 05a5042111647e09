-- Snapshots of runs, and who projects. What is written is in a transaction that began with BEGIN IMMEDIATE: what
-- a snapshot was computed from cannot change between the comparison and the write.

-- name: load
SELECT run.run_key, snap.snapshot, snap.revision, snap.step_count
  FROM tidewheel_runs AS run
  LEFT JOIN tidewheel_snapshots AS snap ON snap.run_key = run.run_key
 WHERE run.namespace = ? AND run.run_id = ?;

-- name: later_step
SELECT place, step
  FROM tidewheel_snapshot_steps
 WHERE run_key = ? AND step_id = ?;

-- name: later_steps
SELECT place, step
  FROM tidewheel_snapshot_steps
 WHERE run_key = ?;

-- name: add
INSERT INTO tidewheel_snapshots
      (run_key, namespace, run_id, workflow, status, last_event_seq, stale, revision, step_count, snapshot, updated_at)
VALUES (:run_key, :namespace, :run_id, :workflow, :status, :last_event_seq, :stale, :revision, :step_count,
        :snapshot, :updated_at)
ON CONFLICT (run_key) DO NOTHING;

-- name: change
UPDATE tidewheel_snapshots
   SET workflow = :workflow, status = :status, last_event_seq = :last_event_seq, stale = :stale,
       revision = :revision, step_count = :step_count, snapshot = :snapshot, updated_at = :updated_at
 WHERE run_key = :run_key AND last_event_seq = :before_seq AND revision = :before_revision;

-- name: put_step
INSERT INTO tidewheel_snapshot_steps (run_key, step_id, place, step)
VALUES (?, ?, ?, ?)
ON CONFLICT (run_key, step_id) DO UPDATE SET place = excluded.place, step = excluded.step;

-- name: delete_steps
DELETE FROM tidewheel_snapshot_steps WHERE run_key = ?;

-- name: page
-- The next runs of a namespace: a stretch of one index.
SELECT run_key
  FROM tidewheel_runs
 WHERE namespace = ? AND run_key > ?
 ORDER BY run_key
 LIMIT ?;

-- name: behind
-- Which runs from one key to another are behind. One whose events have not all been published is not: they come.
SELECT run.run_id, coalesce(run.prev_seq, -1), coalesce(snap.last_event_seq, -1)
  FROM tidewheel_runs AS run
  LEFT JOIN tidewheel_snapshots AS snap ON snap.run_key = run.run_key
 WHERE run.namespace = :namespace AND run.run_key > :after AND run.run_key <= :upto
   AND run.updated_at < :quiet_since
   AND NOT EXISTS (SELECT 1 FROM tidewheel_outbox AS owed WHERE owed.run_key = run.run_key)
   AND (coalesce(snap.last_event_seq, -1) <> coalesce(run.prev_seq, -1)
        OR coalesce(snap.stale, 0)
        OR EXISTS (SELECT 1
                     FROM json_each(:projections)
                     LEFT JOIN tidewheel_projections AS read
                       ON read.run_key = run.run_key AND read.projection = json_each.value
                    WHERE coalesce(read.last_event_seq, -1) <> coalesce(run.prev_seq, -1)))
 ORDER BY run.run_key;

-- name: attend
INSERT INTO tidewheel_projectors (namespace, member, alive_until)
VALUES (?, ?, ?)
ON CONFLICT (namespace, member) DO UPDATE SET alive_until = excluded.alive_until;

-- name: forget_dead
DELETE FROM tidewheel_projectors WHERE namespace = ? AND alive_until <= ?;

-- name: members
SELECT member FROM tidewheel_projectors WHERE namespace = ? ORDER BY member;

-- name: leave
DELETE FROM tidewheel_projectors WHERE namespace = ? AND member = ?;
