-- The runs' rows. Only the ledger writes them, in a transaction that began with BEGIN IMMEDIATE: from
-- then on nobody else writes, so what a statement here reads is what is there ("lock, then look").

-- name: by_ref
-- Find a run by its name.
SELECT run_key, namespace, run_id, workflow, version, digest, queue, parent_key, idempotency_key,
       phase, cancelling, paused, last_seq, segment_seq, first_position, token, inline_steps,
       owner, owner_message,
       wake_at, hints, deliveries, prev_seq, started_id, has_unkeyed_steps, has_numeric_keys, has_promises,
       strikes, parked, parked_reason, reply_to, created_at, updated_at, ended_at, place, admit_at
  FROM tidewheel_runs
 WHERE namespace = ? AND run_id = ?;

-- name: by_key
-- Find a run by its key.
SELECT run_key, namespace, run_id, workflow, version, digest, queue, parent_key, idempotency_key,
       phase, cancelling, paused, last_seq, segment_seq, first_position, token, inline_steps,
       owner, owner_message,
       wake_at, hints, deliveries, prev_seq, started_id, has_unkeyed_steps, has_numeric_keys, has_promises,
       strikes, parked, parked_reason, reply_to, created_at, updated_at, ended_at, place, admit_at
  FROM tidewheel_runs
 WHERE run_key = ?;

-- name: by_idempotency_key
-- Find the run that was started with an idempotency key.
SELECT run_key, namespace, run_id, workflow, version, digest, queue, parent_key, idempotency_key,
       phase, cancelling, paused, last_seq, segment_seq, first_position, token, inline_steps,
       owner, owner_message,
       wake_at, hints, deliveries, prev_seq, started_id, has_unkeyed_steps, has_numeric_keys, has_promises,
       strikes, parked, parked_reason, reply_to, created_at, updated_at, ended_at, place, admit_at
  FROM tidewheel_runs
 WHERE namespace = ? AND idempotency_key = ?;

-- name: put
-- Write a run's row, new or changed. What a run is called never changes, so that no index over it is touched.
INSERT INTO tidewheel_runs
      (run_key, namespace, run_id, workflow, version, digest, queue, parent_key, idempotency_key,
       phase, cancelling, paused, last_seq, segment_seq, first_position, token, inline_steps,
       owner, owner_message,
       wake_at, hints, deliveries, prev_seq, started_id, has_unkeyed_steps, has_numeric_keys, has_promises,
       strikes, parked, parked_reason, reply_to, created_at, updated_at, ended_at, place, admit_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run_key) DO UPDATE
   SET version = excluded.version,
       digest = excluded.digest,
       queue = excluded.queue,
       phase = excluded.phase,
       cancelling = excluded.cancelling,
       paused = excluded.paused,
       last_seq = excluded.last_seq,
       segment_seq = excluded.segment_seq,
       first_position = excluded.first_position,
       token = excluded.token,
       inline_steps = excluded.inline_steps,
       owner = excluded.owner,
       owner_message = excluded.owner_message,
       wake_at = excluded.wake_at,
       hints = excluded.hints,
       deliveries = excluded.deliveries,
       prev_seq = excluded.prev_seq,
       started_id = excluded.started_id,
       has_unkeyed_steps = excluded.has_unkeyed_steps,
       has_numeric_keys = excluded.has_numeric_keys,
       has_promises = excluded.has_promises,
       strikes = excluded.strikes,
       parked = excluded.parked,
       parked_reason = excluded.parked_reason,
       reply_to = excluded.reply_to,
       updated_at = excluded.updated_at,
       ended_at = excluded.ended_at,
       place = excluded.place,
       admit_at = excluded.admit_at;

-- name: list
-- List runs, newest first. States are phase, cancelling and paused in one word; a condition that is null is
-- not asked for.
SELECT run_key, namespace, run_id, workflow, version, digest, queue, parent_key, idempotency_key,
       phase, cancelling, paused, last_seq, segment_seq, first_position, token, inline_steps,
       owner, owner_message,
       wake_at, hints, deliveries, prev_seq, started_id, has_unkeyed_steps, has_numeric_keys, has_promises,
       strikes, parked, parked_reason, reply_to, created_at, updated_at, ended_at, place, admit_at
  FROM tidewheel_runs
 WHERE namespace = :namespace
   AND run_key < :before
   AND (:workflow IS NULL OR workflow = :workflow)
   AND (:states IS NULL OR phase || cancelling || paused IN (SELECT value FROM json_each(:states)))
   AND (NOT :open_only OR ended_at IS NULL)
 ORDER BY run_key DESC
 LIMIT :limit_max;

-- name: list_parked
-- As above, of the parked ones alone: they are few, and have an index of their own.
SELECT run_key, namespace, run_id, workflow, version, digest, queue, parent_key, idempotency_key,
       phase, cancelling, paused, last_seq, segment_seq, first_position, token, inline_steps,
       owner, owner_message,
       wake_at, hints, deliveries, prev_seq, started_id, has_unkeyed_steps, has_numeric_keys, has_promises,
       strikes, parked, parked_reason, reply_to, created_at, updated_at, ended_at, place, admit_at
  FROM tidewheel_runs
 WHERE namespace = :namespace
   AND run_key < :before
   AND parked IS NOT NULL
   AND (:workflow IS NULL OR workflow = :workflow)
   AND (:states IS NULL OR phase || cancelling || paused IN (SELECT value FROM json_each(:states)))
   AND (NOT :open_only OR ended_at IS NULL)
 ORDER BY run_key DESC
 LIMIT :limit_max;
