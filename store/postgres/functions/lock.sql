-- Lock the runs that a group of appends concerns, then look at what the appends will ask for.
--
-- *asked* is as in tidewheel_look_v2, and has moreover {"names": [numbers], "runs": [{"n", "r"}, ...], "by_key":
-- [bytes], "keys": [{"n", "k": idempotency key}, ...], "closing": [{"n", "r"}, ...], "limits": [{"n", "q": queue}, ...]}. Of the runs in
-- "closing" the parent and the open children are locked too: their end concerns them. Of the queues in "limits" those that
-- have a limit come back with how many of their runs are under way and how many are queued.
--
-- Why nobody waits in a circle: names come first, then limits, then runs, then steps, each of them in the order of their
-- keys. Names are those of runs that are about to be started; the numbers are their hashes. Unless *waiting*,
-- runs that somebody else has are left out, and the caller finds them in "skipped": one run that is held up does
-- not hold up its group.
--
-- Why it sees what is there: a name's lock, a run's lock and a look are statements of their own, and each of
-- them begins after the one before has got what it waited for. The runs' rows are given out as they are once
-- locked: Postgres reads a row again that changed while it was waited for.
CREATE OR REPLACE FUNCTION tidewheel_lock_v2(asked jsonb, waiting boolean) RETURNS jsonb
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    wanted bytea[];
    rows jsonb;
    skipped jsonb;
    limits jsonb;
BEGIN
    IF asked ? 'names' THEN
        PERFORM pg_advisory_xact_lock(name.number)
           FROM (SELECT value::bigint AS number
                   FROM jsonb_array_elements_text(asked -> 'names')
                  ORDER BY 1) AS name;
    END IF;

    IF asked ? 'limits' THEN
        PERFORM FROM tidewheel_admission AS limited
           JOIN jsonb_to_recordset(asked -> 'limits') AS ask(n text, q text)
             ON limited.namespace = ask.n AND limited.queue = ask.q
          ORDER BY limited.namespace, limited.queue
            FOR UPDATE OF limited;
        IF FOUND THEN
            SELECT jsonb_agg(jsonb_build_array(
                       limited.namespace, limited.queue, limited.max_running, limited.max_pending, limited.overload,
                       limited.pause_s,
                       (SELECT count(*) FROM tidewheel_runs AS run
                         WHERE run.place = 'running' AND run.namespace = ask.n AND run.queue = ask.q),
                       (SELECT count(*) FROM tidewheel_runs AS run
                         WHERE run.place = 'queued' AND run.namespace = ask.n AND run.queue = ask.q))) INTO limits
              FROM tidewheel_admission AS limited
              JOIN jsonb_to_recordset(asked -> 'limits') AS ask(n text, q text)
                ON limited.namespace = ask.n AND limited.queue = ask.q;
        END IF;
    END IF;

    SELECT array_agg(run.run_key) INTO wanted
      FROM jsonb_to_recordset(asked -> 'runs') AS ask(n text, r text)
      CROSS JOIN LATERAL (SELECT * FROM tidewheel_runs WHERE namespace = ask.n AND run_id = ask.r LIMIT 1) AS run;
    IF asked ? 'keys' THEN
        SELECT wanted || array_agg(run.run_key) INTO wanted
          FROM jsonb_to_recordset(asked -> 'keys') AS ask(n text, k text)
          JOIN tidewheel_runs AS run ON run.namespace = ask.n AND run.idempotency_key = ask.k;
    END IF;
    IF asked ? 'by_key' THEN
        SELECT wanted || array_agg(value::bytea) INTO wanted
          FROM jsonb_array_elements_text(asked -> 'by_key');
    END IF;
    IF asked ? 'closing' THEN
        SELECT wanted || array_agg(run.parent_key) INTO wanted
          FROM jsonb_to_recordset(asked -> 'closing') AS ask(n text, r text)
          CROSS JOIN LATERAL (SELECT * FROM tidewheel_runs WHERE namespace = ask.n AND run_id = ask.r LIMIT 1) AS run
         WHERE run.parent_key IS NOT NULL;
        SELECT wanted || array_agg(child.run_key) INTO wanted
          FROM jsonb_to_recordset(asked -> 'closing') AS ask(n text, r text)
          CROSS JOIN LATERAL (SELECT * FROM tidewheel_runs WHERE namespace = ask.n AND run_id = ask.r LIMIT 1) AS run
          JOIN tidewheel_steps AS step ON step.run_key = run.run_key AND step.kind = 'workflow'
          JOIN tidewheel_runs AS child ON child.namespace = run.namespace
                                      AND child.run_id = split_part(run.run_id, ':', 1) || ':' || step.path;
    END IF;

    IF waiting THEN
        SELECT jsonb_agg(to_jsonb(run)) INTO rows
          FROM (SELECT * FROM tidewheel_runs WHERE run_key = ANY (wanted) ORDER BY run_key FOR UPDATE) AS run;
    ELSE
        SELECT jsonb_agg(to_jsonb(run)) INTO rows
          FROM (SELECT * FROM tidewheel_runs WHERE run_key = ANY (wanted)
                 ORDER BY run_key FOR UPDATE SKIP LOCKED) AS run;
        IF cardinality(wanted) > coalesce(jsonb_array_length(rows), 0) THEN
            SELECT jsonb_agg(jsonb_build_array(run.namespace, run.run_id)) INTO skipped
              FROM tidewheel_runs AS run
             WHERE run.run_key = ANY (wanted)
               AND run.run_key <> ALL (SELECT (got ->> 'run_key')::bytea
                                         FROM jsonb_array_elements(coalesce(rows, '[]')) AS got);
        END IF;
    END IF;

    RETURN tidewheel_look_v2(asked)
           || jsonb_build_object('now', tidewheel_now_v1(), 'runs', rows, 'skipped', skipped, 'limits', limits);
END
$$;
