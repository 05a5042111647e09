-- What is open in a run's current segment: steps that are not in the run's row, timers, promises. Written by the ledger alone, under the
-- write lock of its transaction.

-- name: step
SELECT path, kind, function_name, queue, dispatch, state, attempt, scheduled_seq, scheduled_at,
       owner, abandoned, due_at, hints, start_by, close_by, heartbeat_s, beat, step_id, key_part,
       logical_attempt, told, failed, signal_id
  FROM tidewheel_steps
 WHERE run_key = ? AND path = ?;

-- name: steps
-- In the order in which they were scheduled, as the memory twin has them.
SELECT path, kind, function_name, queue, dispatch, state, attempt, scheduled_seq, scheduled_at,
       owner, abandoned, due_at, hints, start_by, close_by, heartbeat_s, beat, step_id, key_part,
       logical_attempt, told, failed, signal_id
  FROM tidewheel_steps
 WHERE run_key = ?
 ORDER BY scheduled_seq;

-- name: inline_steps
-- Only those that workers execute without a queue: all that a worker which knows the run asks for again.
SELECT path, kind, function_name, queue, dispatch, state, attempt, scheduled_seq, scheduled_at,
       owner, abandoned, due_at, hints, start_by, close_by, heartbeat_s, beat, step_id, key_part,
       logical_attempt, told, failed, signal_id
  FROM tidewheel_steps
 WHERE run_key = ? AND dispatch = 'inline'
 ORDER BY scheduled_seq;

-- name: put_step
-- Write a step's row, new or changed.
INSERT INTO tidewheel_steps
      (run_key, path, kind, function_name, queue, dispatch, state, attempt, scheduled_seq,
       scheduled_at, owner, abandoned, due_at, hints, start_by, close_by, heartbeat_s, beat,
       step_id, key_part, logical_attempt, told, failed, signal_id)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run_key, path) DO UPDATE
   SET kind = excluded.kind,
       function_name = excluded.function_name,
       queue = excluded.queue,
       dispatch = excluded.dispatch,
       state = excluded.state,
       attempt = excluded.attempt,
       scheduled_seq = excluded.scheduled_seq,
       scheduled_at = excluded.scheduled_at,
       owner = excluded.owner,
       abandoned = excluded.abandoned,
       due_at = excluded.due_at,
       hints = excluded.hints,
       start_by = excluded.start_by,
       close_by = excluded.close_by,
       heartbeat_s = excluded.heartbeat_s,
       beat = excluded.beat,
       step_id = excluded.step_id,
       key_part = excluded.key_part,
       logical_attempt = excluded.logical_attempt,
       told = excluded.told,
       failed = excluded.failed,
       signal_id = excluded.signal_id;

-- name: delete_step
DELETE FROM tidewheel_steps
 WHERE run_key = ? AND path = ?;

-- name: clear_steps
DELETE FROM tidewheel_steps
 WHERE run_key = ?;

-- name: timer
SELECT path, fire_at, due_at
  FROM tidewheel_timers
 WHERE run_key = ? AND path = ?;

-- name: timers
SELECT path, fire_at, due_at
  FROM tidewheel_timers
 WHERE run_key = ?
 ORDER BY fire_at, path;

-- name: put_timer
-- A path is used once in a run, so a second timer there would be a mistake: no ON CONFLICT.
INSERT INTO tidewheel_timers (run_key, path, fire_at, due_at)
VALUES (?, ?, ?, ?);

-- name: delete_timer
DELETE FROM tidewheel_timers
 WHERE run_key = ? AND path = ?;

-- name: clear_timers
DELETE FROM tidewheel_timers
 WHERE run_key = ?;

-- name: promise
SELECT path, resolved
  FROM tidewheel_promises
 WHERE run_key = ? AND name = ?;

-- name: put_promise
-- The latest promise of a name is the one that outsiders mean.
INSERT INTO tidewheel_promises (run_key, name, path, resolved)
VALUES (?, ?, ?, ?)
ON CONFLICT (run_key, name) DO UPDATE
   SET path = excluded.path, resolved = excluded.resolved;

-- name: clear_promises
DELETE FROM tidewheel_promises
 WHERE run_key = ?;
