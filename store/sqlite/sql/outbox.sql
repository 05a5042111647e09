-- What the event bus is owed. Each write is in a transaction that began with BEGIN IMMEDIATE, so that two relays never
-- claim the same row.

-- name: next_lowest
-- The lowest row of the next run that has any.
SELECT run_key, first_seq, attempts,
       dead_at IS NULL AND (attempts = 0 OR due_at <= :now) AND (claimed_until IS NULL OR claimed_until <= :now)
  FROM tidewheel_outbox
 WHERE run_key > :after
 ORDER BY run_key, first_seq
 LIMIT 1;

-- name: claim
UPDATE tidewheel_outbox
   SET claimed_by = :relay, claimed_until = :until
 WHERE run_key = :run_key AND first_seq = :first_seq;

-- name: run
SELECT namespace, run_id, workflow
  FROM tidewheel_runs
 WHERE run_key = ?;

-- name: rows
-- The rows of a run up to one that is dead.
SELECT owed.first_seq, owed.last_seq, coalesce(length(passage.data), 0), owed.created_at
  FROM tidewheel_outbox AS owed
  LEFT JOIN tidewheel_journal AS passage
         ON passage.run_key = owed.run_key AND passage.first_seq = owed.first_seq
 WHERE owed.run_key = ?
   AND NOT EXISTS (
       SELECT 1 FROM tidewheel_outbox AS dead
        WHERE dead.run_key = owed.run_key AND dead.first_seq <= owed.first_seq AND dead.dead_at IS NOT NULL)
 ORDER BY owed.first_seq
 LIMIT ?;

-- name: passage
SELECT first_seq, last_seq, at, codec, data, checksum, public
  FROM tidewheel_journal
 WHERE run_key = ? AND first_seq = ?;

-- name: renew
UPDATE tidewheel_outbox
   SET claimed_until = ?
 WHERE run_key = ? AND claimed_by = ?;

-- name: release
UPDATE tidewheel_outbox
   SET claimed_by = NULL, claimed_until = NULL
 WHERE run_key = ? AND claimed_by = ?;

-- name: sent
DELETE FROM tidewheel_outbox
 WHERE run_key = ? AND first_seq = ?;

-- name: failed
UPDATE tidewheel_outbox
   SET attempts = attempts + 1,
       due_at = :due_at,
       claimed_by = NULL,
       claimed_until = NULL,
       first_error = coalesce(first_error, :error),
       last_error = :error,
       dead_at = :dead_at
 WHERE run_key = :run_key AND first_seq = :first_seq AND dead_at IS NULL;

-- name: backlog
SELECT (SELECT count(*) FROM (SELECT 1 FROM tidewheel_outbox LIMIT :counted_max)),
       (SELECT count(*) FROM (SELECT 1 FROM tidewheel_outbox WHERE dead_at IS NOT NULL LIMIT :counted_max)),
       (SELECT min(created_at)
          FROM (SELECT created_at FROM tidewheel_outbox ORDER BY run_key, first_seq LIMIT :counted_max));

-- name: dead_letters
-- They are few, and come first: CROSS JOIN keeps SQLite from going through the runs instead.
SELECT dead.run_key, dead.first_seq, run.namespace, run.run_id, run.workflow, dead.last_seq, dead.attempts,
       dead.first_error, dead.last_error, dead.created_at, dead.dead_at,
       (SELECT count(*)
          FROM (SELECT 1 FROM tidewheel_outbox AS behind
                 WHERE behind.run_key = dead.run_key AND behind.first_seq > dead.first_seq
                 LIMIT :counted_max))
  FROM tidewheel_outbox AS dead INDEXED BY tidewheel_outbox_dead
 CROSS JOIN tidewheel_runs AS run ON run.run_key = dead.run_key
 WHERE dead.dead_at IS NOT NULL
   AND (dead.run_key, dead.first_seq) > (:after_key, :after_seq)
   AND run.namespace = :namespace
   AND (:run_id IS NULL OR run.run_id = :run_id)
   AND (:workflow IS NULL OR run.workflow = :workflow)
 ORDER BY dead.run_key, dead.first_seq
 LIMIT :limit_max;

-- name: redrive
UPDATE tidewheel_outbox
   SET attempts = 0, due_at = ?, first_error = NULL, last_error = NULL, dead_at = NULL
 WHERE run_key = ? AND first_seq = ? AND dead_at IS NOT NULL;

-- name: discard
DELETE FROM tidewheel_outbox
 WHERE run_key = ? AND first_seq = ? AND dead_at IS NOT NULL;
