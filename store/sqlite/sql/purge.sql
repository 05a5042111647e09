-- Delete a run and all that is its own: one statement per table, in one transaction. The caller has looked,
-- under the lock, that the run has ended.

-- name: journal
DELETE FROM tidewheel_journal WHERE run_key = ?;

-- name: steps
DELETE FROM tidewheel_steps WHERE run_key = ?;

-- name: timers
DELETE FROM tidewheel_timers WHERE run_key = ?;

-- name: promises
DELETE FROM tidewheel_promises WHERE run_key = ?;

-- name: facts_seen
DELETE FROM tidewheel_facts_seen WHERE run_key = ?;

-- name: step_ids
DELETE FROM tidewheel_step_ids WHERE run_key = ?;

-- name: outbox
DELETE FROM tidewheel_outbox WHERE run_key = ?;

-- name: snapshots
DELETE FROM tidewheel_snapshots WHERE run_key = ?;

-- name: snapshot_steps
DELETE FROM tidewheel_snapshot_steps WHERE run_key = ?;

-- name: projections
DELETE FROM tidewheel_projections WHERE run_key = ?;

-- name: runs
DELETE FROM tidewheel_runs WHERE run_key = ?;
