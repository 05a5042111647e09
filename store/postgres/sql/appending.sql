-- The calls of an append. What they do is in the functions; their arguments are JSON and arrays.

-- name: lock
SELECT tidewheel_lock_v1(%s::jsonb, %s)::text;

-- name: look
SELECT tidewheel_look_v1(%s::jsonb)::text;

-- name: write
SELECT tidewheel_write_v1(%s::jsonb, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s);

-- name: write_known
SELECT stale, mark, now
  FROM tidewheel_write_known_v1(
       $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13,
       $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26,
       $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38);

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
