-- The journal, what is owed to the event bus, and what must happen once. The events of an append are one row, which
-- is only ever inserted; rows are deleted with their run.

-- name: read
-- The rows that have the events of a range, both ends included, in their order. The first of them may begin before.
SELECT first_seq, last_seq, at, codec, data, checksum
  FROM tidewheel_journal
 WHERE run_key = :run_key
   AND first_seq <= :last_seq
   AND first_seq >= coalesce((SELECT max(first_seq) FROM tidewheel_journal
                               WHERE run_key = :run_key AND first_seq <= :first_seq), 0)
 ORDER BY first_seq;

-- name: add
-- The next events of a run. A sequence number that is taken fails, and with it the transaction.
INSERT INTO tidewheel_journal (run_key, first_seq, last_seq, at, codec, data, checksum, public)
VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: owe
-- What those events publish, the event bus is owed.
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
