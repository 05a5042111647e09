-- The calls of an append. What they do is in the functions; their arguments are JSON and arrays.

-- name: lock
SELECT tidewheel_lock_v2(%s::jsonb, %s)::text;

-- name: look
SELECT tidewheel_look_v2(%s::jsonb)::text;

-- name: write
SELECT tidewheel_write_v2(%s::jsonb, %s, %s, %s, %s, %s, %s, %s, %s);

-- name: write_known
SELECT stale, now
  FROM tidewheel_write_known_v2(
       $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,
       $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32);

-- name: write_one
-- As tidewheel_write_known_v2, for one run that moved on and has nothing special: it is one statement, without a function
-- around it that would begin and end five, which is what a run by itself waits for. Arguments: own clock, event_at, revision,
-- key, last_seq, first_seq, data, checksum, public, phase, token, inline steps, owner, message, wake_at, prev_seq,
-- unkeyed, ended_at.
--
-- All of it has one snapshot. If a keeper changed the row after that was taken, which does not count its revision up, the
-- new version is what is locked, and the update cannot see it. So what else is written comes of the update: then that is
-- nothing, and it is stale.
WITH clock AS MATERIALIZED (
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now),
locked AS MATERIALIZED (
    SELECT run.run_key, run.ctid AS place, CASE WHEN $1::boolean THEN clock.now ELSE $2::bigint END AS happened_at
      FROM clock, tidewheel_runs AS run
     WHERE run.run_key = $4::bytea AND run.revision = $3::bigint
       AND (NOT $1::boolean OR abs(clock.now - $2::bigint) <= 1000000)
       FOR UPDATE OF run SKIP LOCKED),
moved AS (
    UPDATE tidewheel_runs AS run
       SET phase = $10::text,
           last_seq = $5::bigint,
           token = $11::bytea,
           inline_steps = $12::text,
           owner = $13::text,
           owner_message = $14::text,
           wake_at = $15::bigint,
           prev_seq = $16::bigint,
           has_unkeyed_steps = $17::bigint <> 0,
           updated_at = $2::bigint,
           ended_at = $18::bigint,
           revision = $3::bigint + 1
      FROM locked
     WHERE run.ctid = locked.place
 RETURNING run.run_key, locked.happened_at),
passage AS (
    INSERT INTO tidewheel_journal (run_key, first_seq, last_seq, at, codec, data, checksum, public)
    SELECT run_key, $6::bigint, $5::bigint, happened_at, 'json', $7::bytea, $8::bigint, $9::bytea
      FROM moved),
owed AS (
    INSERT INTO tidewheel_outbox (run_key, first_seq, last_seq, created_at, due_at)
    SELECT run_key, $6::bigint, $5::bigint, $2::bigint, $2::bigint
      FROM moved
     WHERE $9::bytea IS NOT NULL)
SELECT NOT EXISTS (SELECT FROM moved), clock.now
  FROM clock;

-- name: end_backend
-- End the backend of a connection that was lost in a commit, if it still has its transaction. Its number may
-- be another's by now, so it must bear the name that only the connections of this store have.
SELECT pg_terminate_backend(pid)
  FROM pg_stat_activity
 WHERE pid = %s
   AND application_name = %s
   AND xact_start IS NOT NULL;

-- name: sign_step
-- A mark that goes with the transaction: if it is gone, so is the transaction. Also the settings with which our
-- statements work.
SELECT current_setting('role'), current_setting('search_path'), current_setting('bytea_output'),
       set_config('tidewheel.step', %s, true);

-- name: take_back
-- Whether the mark is there; the settings are again as they were, for the rest of the transaction.
SELECT current_setting('tidewheel.step', true) = %s,
       set_config('role', %s, true), set_config('search_path', %s, true), set_config('bytea_output', %s, true);
