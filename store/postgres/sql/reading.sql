-- What can be asked without writing. Each statement is one snapshot, so all it reads is as of one moment.
--
-- Runs are looked up by LATERAL with a LIMIT, which Postgres cannot turn around: plans are made once per connection,
-- and one made while the table was small would go through all runs for each that is asked for.

-- name: now
SELECT tidewheel_now_v1();

-- name: find
-- Runs' rows.
SELECT ask.place, to_json(run)::text
  FROM unnest(%(namespaces)s::text[], %(run_ids)s::text[]) WITH ORDINALITY AS ask(namespace, run_id, place)
 CROSS JOIN LATERAL (
       SELECT * FROM tidewheel_runs WHERE namespace = ask.namespace AND run_id = ask.run_id LIMIT 1) AS run;

-- name: load
-- Runs as activations need them: a run's row, the events of its segment or those after one of them, its open steps
-- (only the inline ones if it is known already), its timers, who of the steps' owners is alive, and its revision,
-- unless there are steps that were not read.
SELECT ask.place, to_json(run.row)::text,
       (SELECT json_agg(step ORDER BY step.scheduled_seq)
          FROM tidewheel_steps AS step
         WHERE step.run_key = run.run_key
           AND (ask.after IS NULL OR step.dispatch = 'inline'))::text,
       (SELECT json_agg(timer ORDER BY timer.fire_at, timer.path)
          FROM tidewheel_timers AS timer
         WHERE timer.run_key = run.run_key)::text,
       (SELECT json_agg(worker.worker_id)
          FROM (SELECT run.owner
                 UNION
                SELECT step.owner FROM tidewheel_steps AS step WHERE step.run_key = run.run_key) AS known
          JOIN tidewheel_workers AS worker ON worker.worker_id = known.owner
         WHERE worker.alive_until > coalesce(%(now)s::bigint, tidewheel_now_v1()))::text,
       coalesce(%(now)s::bigint, tidewheel_now_v1()),
       CASE WHEN ask.after IS NULL
              OR NOT EXISTS (SELECT FROM tidewheel_steps AS step
                              WHERE step.run_key = run.run_key AND step.dispatch <> 'inline')
            THEN run.revision END,
       part.firsts, part.lasts, part.ats, part.codecs, part.datas, part.checksums
  FROM unnest(%(namespaces)s::text[], %(run_ids)s::text[], %(afters)s::bigint[])
       WITH ORDINALITY AS ask(namespace, run_id, after, place)
 CROSS JOIN LATERAL (
       SELECT run AS row, revision, run_key, owner, segment_seq, last_seq
         FROM tidewheel_runs AS run
        WHERE namespace = ask.namespace AND run_id = ask.run_id
        LIMIT 1) AS run
 CROSS JOIN LATERAL (
       SELECT array_agg(first_seq) AS firsts, array_agg(last_seq) AS lasts, array_agg(at) AS ats,
              array_agg(codec) AS codecs, array_agg(data) AS datas, array_agg(checksum) AS checksums
         FROM (SELECT first_seq, last_seq, at, codec, data, checksum
                 FROM tidewheel_journal AS passage
                WHERE passage.run_key = run.run_key
                  AND passage.first_seq <= run.last_seq
                  AND passage.last_seq > coalesce(ask.after, -1)
                  AND passage.first_seq >= coalesce(
                      (SELECT max(first_seq) FROM tidewheel_journal AS earlier
                        WHERE earlier.run_key = run.run_key
                          AND earlier.first_seq <= greatest(run.segment_seq, coalesce(ask.after + 1, 0))), 0)
                ORDER BY first_seq) AS passage) AS part;

-- name: load_step
-- An open step, which has a row or is in its run's, and what scheduled it.
SELECT to_json(run)::text, to_json(step)::text, coalesce(%(now)s::bigint, tidewheel_now_v1()),
       passage.first_seq, passage.last_seq, passage.at, passage.codec, passage.data, passage.checksum
  FROM tidewheel_runs AS run
  LEFT JOIN tidewheel_steps AS step ON step.run_key = run.run_key AND step.path = %(path)s
  LEFT JOIN LATERAL (
       SELECT (inline ->> 'scheduled_seq')::bigint AS scheduled_seq
         FROM json_array_elements(run.inline_steps::json) AS inline
        WHERE inline ->> 'path' = %(path)s) AS inline ON true
  LEFT JOIN LATERAL (
       SELECT *
         FROM tidewheel_journal
        WHERE run_key = run.run_key AND first_seq <= coalesce(inline.scheduled_seq, step.scheduled_seq)
        ORDER BY first_seq DESC
        LIMIT 1) AS passage ON true
 WHERE run.namespace = %(namespace)s AND run.run_id = %(run_id)s;

-- name: journal
-- The events of runs, each after one of them.
SELECT ask.place, run.last_seq, part.firsts, part.lasts, part.ats, part.codecs, part.datas, part.checksums
  FROM unnest(%(namespaces)s::text[], %(run_ids)s::text[], %(afters)s::bigint[])
       WITH ORDINALITY AS ask(namespace, run_id, after, place)
 CROSS JOIN LATERAL (
       SELECT run_key, last_seq
         FROM tidewheel_runs
        WHERE namespace = ask.namespace AND run_id = ask.run_id
        LIMIT 1) AS run
 CROSS JOIN LATERAL (
       SELECT array_agg(first_seq) AS firsts, array_agg(last_seq) AS lasts, array_agg(at) AS ats,
              array_agg(codec) AS codecs, array_agg(data) AS datas, array_agg(checksum) AS checksums
         FROM (SELECT first_seq, last_seq, at, codec, data, checksum
                 FROM tidewheel_journal AS passage
                WHERE passage.run_key = run.run_key
                  AND passage.first_seq <= run.last_seq
                  AND passage.last_seq > ask.after
                  AND passage.first_seq >= coalesce(
                      (SELECT max(first_seq) FROM tidewheel_journal AS earlier
                        WHERE earlier.run_key = run.run_key AND earlier.first_seq <= ask.after + 1), 0)
                ORDER BY first_seq) AS passage) AS part;

-- name: list
-- Runs, newest first. States are phase, cancelling and paused in one word; a condition that is null is not
-- asked for.
SELECT to_json(run)::text
  FROM tidewheel_runs AS run
 WHERE namespace = %(namespace)s
   AND run_key < %(before)s
   AND (%(workflow)s::text IS NULL OR workflow = %(workflow)s)
   AND (%(states)s::text[] IS NULL OR phase || cancelling::int || paused::int = ANY (%(states)s))
   AND (NOT %(open_only)s OR ended_at IS NULL)
 ORDER BY run_key DESC
 LIMIT %(limit_max)s;

-- name: list_parked
-- As above, of the parked ones alone: they are few, and have an index of their own.
SELECT to_json(run)::text
  FROM tidewheel_runs AS run
 WHERE namespace = %(namespace)s
   AND run_key < %(before)s
   AND parked IS NOT NULL
   AND (%(workflow)s::text IS NULL OR workflow = %(workflow)s)
   AND (%(states)s::text[] IS NULL OR phase || cancelling::int || paused::int = ANY (%(states)s))
   AND (NOT %(open_only)s OR ended_at IS NULL)
 ORDER BY run_key DESC
 LIMIT %(limit_max)s;

-- name: workers
SELECT to_json(worker)::text
  FROM tidewheel_workers AS worker
 ORDER BY started_at, worker_id;
