-- The journal, what is owed to the event bus, and what must happen once. Events are only ever inserted; they
-- are deleted with their run.

-- name: read
-- Events in their order, both ends included.
SELECT run_seq, at, type, version, codec, data, checksum
  FROM tidewheel_events
 WHERE run_key = ? AND run_seq BETWEEN ? AND ?
 ORDER BY run_seq;

-- name: add
-- The next events of a run. A sequence number that is taken fails, and with it the transaction.
INSERT INTO tidewheel_events
      (run_key, run_seq, at, type, version, codec, data, checksum, public_key, prev_seq, public)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: owe
-- One row per run and commit. Several appends of one run in one commit each owe their own range.
INSERT INTO tidewheel_outbox (run_key, first_seq, last_seq, created_at, due_at)
VALUES (?, ?, ?, ?, ?);

-- name: is_known
SELECT 1
  FROM tidewheel_facts_seen
 WHERE run_key = ? AND fact = ?;

-- name: remember
INSERT INTO tidewheel_facts_seen (run_key, fact)
VALUES (?, ?);

-- name: step_id_attempt
SELECT attempt
  FROM tidewheel_step_ids
 WHERE run_key = ? AND step_id = ?;

-- name: put_step_id
-- Keep the highest attempt.
INSERT INTO tidewheel_step_ids (run_key, step_id, attempt)
VALUES (?, ?, ?)
ON CONFLICT (run_key, step_id) DO UPDATE
   SET attempt = max(attempt, excluded.attempt);
