-- What the event bus is owed. Rows of a run are told in their order, so only its lowest can be claimed. Nothing but the
-- primary key is used to find it: rows are inserted by every append, and an index more would be paid for there.

-- name: claim
-- Step from one run with rows to the next, in the order of their keys, each time to its lowest row; what stands behind it
-- is not looked at. Of these rows those that are due (what never failed always is) and nobody's are claimed, for *lease*
-- microseconds, and come with the rows above them, up to one that is dead. "last_key" says how far it went, and what follows
-- it whether that was the end.
--
-- Why two relays never have the same row: the lock is taken before the row is looked at again, and whoever lost the race
-- finds the other's lease. Why nothing is skipped: rows of a run are written under its lock, so a lower one is never
-- committed after a higher one; and a row that is not committed yet is found when it is.
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::bigint, tidewheel_now_v1()) AS now),
lowest AS (
   (SELECT owed.run_key, owed.first_seq, clock.now, owed.is_free, 1 AS looked, owed.is_free::integer AS found
      FROM clock
     CROSS JOIN LATERAL (
           SELECT run_key, first_seq,
                  dead_at IS NULL AND (attempts = 0 OR due_at <= clock.now)
                    AND coalesce(claimed_until <= clock.now, true) AS is_free
             FROM tidewheel_outbox
            WHERE run_key > %(after)s::bytea
            ORDER BY run_key, first_seq
            LIMIT 1) AS owed)
     UNION ALL
    SELECT next.run_key, next.first_seq, lowest.now, next.is_free,
           lowest.looked + 1, lowest.found + next.is_free::integer
      FROM lowest
     CROSS JOIN LATERAL (
           SELECT run_key, first_seq,
                  dead_at IS NULL AND (attempts = 0 OR due_at <= lowest.now)
                    AND coalesce(claimed_until <= lowest.now, true) AS is_free
             FROM tidewheel_outbox
            WHERE run_key > lowest.run_key
            ORDER BY run_key, first_seq
            LIMIT 1) AS next
     WHERE lowest.looked < %(looked_max)s::integer
       AND lowest.found < %(limit_max)s::integer),
free AS MATERIALIZED (
    SELECT owed.run_key, owed.first_seq
      FROM lowest
     CROSS JOIN LATERAL (
           SELECT run_key, first_seq
             FROM tidewheel_outbox
            WHERE run_key = lowest.run_key AND first_seq = lowest.first_seq
              AND dead_at IS NULL AND (attempts = 0 OR due_at <= lowest.now)
              AND coalesce(claimed_until <= lowest.now, true)
            LIMIT 1
              FOR UPDATE SKIP LOCKED) AS owed
     WHERE lowest.is_free),
claimed AS (
    UPDATE tidewheel_outbox AS owed
       SET claimed_by = %(relay)s::text,
           claimed_until = clock.now + %(lease)s::bigint
      FROM free, clock
     WHERE owed.run_key = free.run_key AND owed.first_seq = free.first_seq
 RETURNING owed.run_key, owed.attempts),
far AS (
    SELECT run_key AS last_key, looked, found FROM lowest ORDER BY looked DESC LIMIT 1)
SELECT far.last_key, far.looked < %(looked_max)s::integer AND far.found < %(limit_max)s::integer, clock.now,
       run.run_key, run.namespace, run.run_id, run.workflow, run.attempts,
       rows.first_seqs, rows.last_seqs, rows.sizes, rows.since
  FROM clock
  LEFT JOIN far ON true
  LEFT JOIN (SELECT claimed.run_key, claimed.attempts, known.namespace, known.run_id, known.workflow
               FROM claimed
               JOIN tidewheel_runs AS known ON known.run_key = claimed.run_key) AS run ON true
  LEFT JOIN LATERAL (
       SELECT array_agg(first_seq) AS first_seqs, array_agg(last_seq) AS last_seqs, array_agg(size) AS sizes,
              min(created_at) AS since
         FROM (SELECT owed.first_seq, owed.last_seq, owed.created_at,
                      coalesce((SELECT octet_length(passage.data)
                                  FROM tidewheel_journal AS passage
                                 WHERE passage.run_key = owed.run_key AND passage.first_seq = owed.first_seq), 0)::bigint
                        AS size
                 FROM tidewheel_outbox AS owed
                WHERE owed.run_key = run.run_key
                  AND NOT EXISTS (
                      SELECT FROM tidewheel_outbox AS dead
                       WHERE dead.run_key = owed.run_key AND dead.first_seq <= owed.first_seq
                         AND dead.dead_at IS NOT NULL)
                ORDER BY owed.first_seq
                LIMIT %(rows_max)s::integer) AS one) AS rows ON true;

-- name: passages
SELECT ask.place, passage.first_seq, passage.last_seq, passage.at, passage.codec, passage.data, passage.checksum,
       passage.public
  FROM unnest(%(run_keys)s::bytea[], %(first_seqs)s::bigint[]) WITH ORDINALITY AS ask(run_key, first_seq, place)
 CROSS JOIN LATERAL (
       SELECT * FROM tidewheel_journal WHERE run_key = ask.run_key AND first_seq = ask.first_seq LIMIT 1) AS passage;

-- name: renew
UPDATE tidewheel_outbox
   SET claimed_until = coalesce(%(now)s::bigint, tidewheel_now_v1()) + %(lease)s::bigint
 WHERE run_key = ANY (%(run_keys)s::bytea[])
   AND claimed_by = %(relay)s::text;

-- name: sent
DELETE FROM tidewheel_outbox AS owed
 USING unnest(%(run_keys)s::bytea[], %(first_seqs)s::bigint[]) AS told(run_key, first_seq)
 WHERE owed.run_key = told.run_key AND owed.first_seq = told.first_seq
   AND owed.run_key = ANY (%(run_keys)s::bytea[]);

-- name: release
UPDATE tidewheel_outbox
   SET claimed_by = NULL, claimed_until = NULL
 WHERE run_key = ANY (%(run_keys)s::bytea[])
   AND claimed_by = %(relay)s::text;

-- name: failed
UPDATE tidewheel_outbox AS owed
   SET attempts = owed.attempts + 1,
       due_at = clock.now + coalesce(trouble.retry_after, 0),
       claimed_by = NULL,
       claimed_until = NULL,
       first_error = coalesce(owed.first_error, trouble.error),
       last_error = trouble.error,
       dead_at = CASE WHEN trouble.retry_after IS NULL THEN clock.now END
  FROM (SELECT coalesce(%(now)s::bigint, tidewheel_now_v1()) AS now) AS clock,
       unnest(%(run_keys)s::bytea[], %(first_seqs)s::bigint[], %(errors)s::text[], %(retry_afters)s::bigint[])
         AS trouble(run_key, first_seq, error, retry_after)
 WHERE owed.run_key = trouble.run_key AND owed.first_seq = trouble.first_seq
   AND owed.run_key = ANY (%(run_keys)s::bytea[])
   AND owed.dead_at IS NULL;

-- name: backlog
SELECT (SELECT count(*) FROM (SELECT FROM tidewheel_outbox LIMIT %(counted_max)s::integer) AS one),
       (SELECT count(*)
          FROM (SELECT FROM tidewheel_outbox WHERE dead_at IS NOT NULL LIMIT %(counted_max)s::integer) AS one),
       (SELECT min(created_at)
          FROM (SELECT created_at FROM tidewheel_outbox ORDER BY run_key, first_seq LIMIT %(counted_max)s::integer)
            AS one),
       coalesce(%(now)s::bigint, tidewheel_now_v1());

-- name: dead_letters
SELECT dead.run_key, dead.first_seq, run.namespace, run.run_id, run.workflow, dead.last_seq, dead.attempts,
       dead.first_error, dead.last_error, dead.created_at, dead.dead_at,
       (SELECT count(*)
          FROM (SELECT FROM tidewheel_outbox AS behind
                 WHERE behind.run_key = dead.run_key AND behind.first_seq > dead.first_seq
                 LIMIT %(counted_max)s::integer) AS one)
  FROM tidewheel_outbox AS dead
  JOIN tidewheel_runs AS run ON run.run_key = dead.run_key
 WHERE dead.dead_at IS NOT NULL
   AND (dead.run_key, dead.first_seq) > (%(after_key)s::bytea, %(after_seq)s::bigint)
   AND run.namespace = %(namespace)s::text
   AND (%(run_id)s::text IS NULL OR run.run_id = %(run_id)s::text)
   AND (%(workflow)s::text IS NULL OR run.workflow = %(workflow)s::text)
 ORDER BY dead.run_key, dead.first_seq
 LIMIT %(limit_max)s::integer;

-- name: redrive
UPDATE tidewheel_outbox AS owed
   SET attempts = 0,
       due_at = coalesce(%(now)s::bigint, tidewheel_now_v1()),
       first_error = NULL,
       last_error = NULL,
       dead_at = NULL
  FROM unnest(%(run_keys)s::bytea[], %(first_seqs)s::bigint[]) AS asked(run_key, first_seq)
 WHERE owed.run_key = asked.run_key AND owed.first_seq = asked.first_seq
   AND owed.run_key = ANY (%(run_keys)s::bytea[])
   AND owed.dead_at IS NOT NULL;

-- name: discard
DELETE FROM tidewheel_outbox AS owed
 USING unnest(%(run_keys)s::bytea[], %(first_seqs)s::bigint[]) AS asked(run_key, first_seq)
 WHERE owed.run_key = asked.run_key AND owed.first_seq = asked.first_seq
   AND owed.run_key = ANY (%(run_keys)s::bytea[])
   AND owed.dead_at IS NOT NULL;
