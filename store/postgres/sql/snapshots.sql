-- Snapshots of runs, and who projects. Each statement is one transaction unless it says otherwise.

-- name: load
-- Snapshots to go on from: what is in their rows, and of the later steps of long runs those that will be spoken of.
SELECT ask.place, run.run_key, snap.snapshot::text, snap.revision, snap.step_count,
       CASE WHEN snap.step_count > %(inline_max)s THEN (
            SELECT json_agg(json_build_array(step.place, step.step::text) ORDER BY step.place)
              FROM json_array_elements_text(ask.step_ids::json) AS wanted(step_id)
              JOIN tidewheel_snapshot_steps AS step
                ON step.run_key = run.run_key AND step.step_id = wanted.step_id)::text END
  FROM unnest(%(namespaces)s::text[], %(run_ids)s::text[], %(step_ids)s::text[])
       WITH ORDINALITY AS ask(namespace, run_id, step_ids, place)
 CROSS JOIN LATERAL (
       SELECT run_key FROM tidewheel_runs WHERE namespace = ask.namespace AND run_id = ask.run_id LIMIT 1) AS run
  LEFT JOIN LATERAL (
       SELECT * FROM tidewheel_snapshots WHERE run_key = run.run_key LIMIT 1) AS snap ON true;

-- name: save
-- Write the snapshots whose predecessors are still there, with the later steps that changed, and return whose.
--
-- The comparison is made under the row's lock: whoever waited for it compares with what the other has written.
WITH ask AS (
    SELECT *
      FROM unnest(%(run_keys)s::bytea[], %(namespaces)s::text[], %(run_ids)s::text[], %(workflows)s::text[],
                  %(statuses)s::text[], %(last_event_seqs)s::bigint[], %(stales)s::bigint[], %(revisions)s::bigint[],
                  %(step_counts)s::bigint[], %(snapshots)s::text[], %(before_seqs)s::bigint[],
                  %(before_revisions)s::bigint[])
        AS ask(run_key, namespace, run_id, workflow, status, last_event_seq, stale, revision, step_count, snapshot,
               before_seq, before_revision)),
changed AS (
    UPDATE tidewheel_snapshots AS snap
       SET workflow = ask.workflow, status = ask.status, last_event_seq = ask.last_event_seq,
           stale = ask.stale <> 0, revision = ask.revision, step_count = ask.step_count,
           snapshot = ask.snapshot::jsonb, updated_at = coalesce(%(now)s::bigint, tidewheel_now_v1())
      FROM ask
     WHERE ask.before_seq IS NOT NULL
       AND snap.run_key = ask.run_key
       AND snap.last_event_seq = ask.before_seq
       AND snap.revision = ask.before_revision
    RETURNING snap.run_key),
added AS (
    INSERT INTO tidewheel_snapshots
          (run_key, namespace, run_id, workflow, status, last_event_seq, stale, revision, step_count, snapshot,
           updated_at)
    SELECT run_key, namespace, run_id, workflow, status, last_event_seq, stale <> 0, revision, step_count,
           snapshot::jsonb, coalesce(%(now)s::bigint, tidewheel_now_v1())
      FROM ask
     WHERE ask.before_seq IS NULL
    ON CONFLICT (run_key) DO NOTHING
    RETURNING run_key),
written AS (
    SELECT run_key FROM changed UNION ALL SELECT run_key FROM added),
later AS (
    INSERT INTO tidewheel_snapshot_steps (run_key, step_id, place, step)
    SELECT step.run_key, step.step_id, step.place, step.step::jsonb
      FROM unnest(%(step_run_keys)s::bytea[], %(step_ids)s::text[], %(places)s::bigint[], %(steps)s::text[])
        AS step(run_key, step_id, place, step)
     WHERE step.run_key IN (SELECT run_key FROM written)
    ON CONFLICT (run_key, step_id) DO UPDATE SET place = excluded.place, step = excluded.step)
SELECT run_key FROM written;

-- name: delete_steps
-- In the transaction of a snapshot that takes the place of another: its own steps are written after it.
DELETE FROM tidewheel_snapshot_steps WHERE run_key = %(run_key)s;

-- name: put_steps
INSERT INTO tidewheel_snapshot_steps (run_key, step_id, place, step)
SELECT step.run_key, step.step_id, step.place, step.step::jsonb
  FROM unnest(%(step_run_keys)s::bytea[], %(step_ids)s::text[], %(places)s::bigint[], %(steps)s::text[])
    AS step(run_key, step_id, place, step);

-- name: read
SELECT snap.snapshot::text,
       (SELECT json_agg(step.step::text ORDER BY step.place)
          FROM tidewheel_snapshot_steps AS step
         WHERE step.run_key = snap.run_key)::text
  FROM (SELECT run_key FROM tidewheel_runs WHERE namespace = %(namespace)s AND run_id = %(run_id)s LIMIT 1) AS run
  JOIN tidewheel_snapshots AS snap ON snap.run_key = run.run_key;

-- name: look
-- The next runs of a namespace: the last of them in a row with no run id, if there are as many as were asked for,
-- and those that are behind. One whose events have not all been published is not: they come.
WITH page AS MATERIALIZED (
    SELECT run_key, run_id, prev_seq, updated_at
      FROM tidewheel_runs
     WHERE namespace = %(namespace)s AND run_key > %(after)s
     ORDER BY run_key
     LIMIT %(limit_max)s)
SELECT NULL::text, max_key.run_key, NULL::bigint, NULL::bigint
  FROM (SELECT run_key FROM page ORDER BY run_key DESC LIMIT 1) AS max_key
 WHERE (SELECT count(*) FROM page) = %(limit_max)s
UNION ALL
SELECT run.run_id, run.run_key, coalesce(run.prev_seq, -1), coalesce(snap.last_event_seq, -1)
  FROM page AS run
  LEFT JOIN LATERAL (
       SELECT last_event_seq, stale FROM tidewheel_snapshots WHERE run_key = run.run_key LIMIT 1) AS snap ON true
 WHERE run.updated_at < %(quiet_since)s
   AND NOT EXISTS (SELECT FROM tidewheel_outbox AS owed WHERE owed.run_key = run.run_key)
   AND (coalesce(snap.last_event_seq, -1) <> coalesce(run.prev_seq, -1)
        OR coalesce(snap.stale, false)
        OR EXISTS (SELECT
                     FROM unnest(%(projections)s::text[]) AS name(projection)
                     LEFT JOIN tidewheel_projections AS mark
                       ON mark.run_key = run.run_key AND mark.projection = name.projection
                    WHERE coalesce(mark.last_event_seq, -1) <> coalesce(run.prev_seq, -1)));

-- name: delete_left
-- Delete snapshots from one key to another whose run is gone: it was retired while they were written.
WITH gone AS (
    SELECT snap.run_key
      FROM tidewheel_snapshots AS snap
     WHERE snap.run_key > %(after)s AND (%(upto)s::bytea IS NULL OR snap.run_key <= %(upto)s::bytea)
       AND NOT EXISTS (SELECT FROM tidewheel_runs AS run WHERE run.run_key = snap.run_key)
     ORDER BY snap.run_key
     LIMIT %(limit_max)s),
steps AS (
    DELETE FROM tidewheel_snapshot_steps WHERE run_key IN (SELECT run_key FROM gone)),
marks AS (
    DELETE FROM tidewheel_projections WHERE run_key IN (SELECT run_key FROM gone))
DELETE FROM tidewheel_snapshots WHERE run_key IN (SELECT run_key FROM gone);

-- name: attend
-- Say that a projector is alive. A moment later others see it; it counts itself in any case.
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::bigint, tidewheel_now_v1()) AS now),
dead AS (
    DELETE FROM tidewheel_projectors USING clock
     WHERE namespace = %(namespace)s AND alive_until <= clock.now AND member <> %(member)s),
mine AS (
    INSERT INTO tidewheel_projectors (namespace, member, alive_until)
    SELECT %(namespace)s, %(member)s, clock.now + %(lease)s FROM clock
    ON CONFLICT (namespace, member) DO UPDATE SET alive_until = excluded.alive_until)
SELECT member
  FROM tidewheel_projectors, clock
 WHERE namespace = %(namespace)s AND alive_until > clock.now AND member <> %(member)s;

-- name: leave
DELETE FROM tidewheel_projectors WHERE namespace = %(namespace)s AND member = %(member)s;
