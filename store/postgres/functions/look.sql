-- What the ledger asked for beside the runs' rows, as one JSON object of lists.
--
-- *asked* has a list for each kind of row that is wanted, and nothing for the others: {"steps": [{"n": namespace,
-- "r": run id, "p": path}, ...], "all_steps": ..., "timers": ..., "promises": ..., "facts": ..., "step_ids": ...,
-- "events": [{"n", "r", "from": first_seq, "to": last_seq or null}, ...]}.
--
-- Why it is safe: the function is volatile, so each statement in it has a snapshot of its own. Whoever calls it
-- holds the locks of the runs, and therefore sees what is there now. Steps are locked too, in the order of
-- their keys: the keeper puts them off without the lock of their run.
CREATE OR REPLACE FUNCTION tidewheel_look_v2(asked jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    found jsonb := '{}';
    part jsonb;
BEGIN
    IF asked ? 'steps' THEN
        SELECT jsonb_agg(to_jsonb(step)) INTO part
          FROM (SELECT step.*
                  FROM jsonb_to_recordset(asked -> 'steps') AS ask(n text, r text, p text)
                  CROSS JOIN LATERAL (SELECT * FROM tidewheel_runs WHERE namespace = ask.n AND run_id = ask.r LIMIT 1) AS run
                  JOIN tidewheel_steps AS step ON step.run_key = run.run_key AND step.path = ask.p
                 ORDER BY step.run_key, step.path
                   FOR UPDATE OF step) AS step;
        found := found || jsonb_build_object('steps', part);
    END IF;
    IF asked ? 'all_steps' THEN
        SELECT jsonb_agg(to_jsonb(step)) INTO part
          FROM (SELECT step.*
                  FROM jsonb_to_recordset(asked -> 'all_steps') AS ask(n text, r text)
                  CROSS JOIN LATERAL (SELECT * FROM tidewheel_runs WHERE namespace = ask.n AND run_id = ask.r LIMIT 1) AS run
                  JOIN tidewheel_steps AS step ON step.run_key = run.run_key
                 ORDER BY step.run_key, step.path
                   FOR UPDATE OF step) AS step;
        found := found || jsonb_build_object('all_steps', part);
    END IF;
    IF asked ? 'timers' THEN
        SELECT jsonb_agg(to_jsonb(timer)) INTO part
          FROM jsonb_to_recordset(asked -> 'timers') AS ask(n text, r text, p text)
          CROSS JOIN LATERAL (SELECT * FROM tidewheel_runs WHERE namespace = ask.n AND run_id = ask.r LIMIT 1) AS run
          JOIN tidewheel_timers AS timer ON timer.run_key = run.run_key AND timer.path = ask.p;
        found := found || jsonb_build_object('timers', part);
    END IF;
    IF asked ? 'promises' THEN
        SELECT jsonb_agg(to_jsonb(promise)) INTO part
          FROM jsonb_to_recordset(asked -> 'promises') AS ask(n text, r text, p text)
          CROSS JOIN LATERAL (SELECT * FROM tidewheel_runs WHERE namespace = ask.n AND run_id = ask.r LIMIT 1) AS run
          JOIN tidewheel_promises AS promise ON promise.run_key = run.run_key AND promise.name = ask.p;
        found := found || jsonb_build_object('promises', part);
    END IF;
    IF asked ? 'facts' THEN
        SELECT jsonb_agg(to_jsonb(seen)) INTO part
          FROM jsonb_to_recordset(asked -> 'facts') AS ask(n text, r text, p text)
          CROSS JOIN LATERAL (SELECT * FROM tidewheel_runs WHERE namespace = ask.n AND run_id = ask.r LIMIT 1) AS run
          JOIN tidewheel_facts_seen AS seen ON seen.run_key = run.run_key AND seen.fact = ask.p;
        found := found || jsonb_build_object('facts', part);
    END IF;
    IF asked ? 'step_ids' THEN
        SELECT jsonb_agg(to_jsonb(used)) INTO part
          FROM jsonb_to_recordset(asked -> 'step_ids') AS ask(n text, r text, p text)
          CROSS JOIN LATERAL (SELECT * FROM tidewheel_runs WHERE namespace = ask.n AND run_id = ask.r LIMIT 1) AS run
          JOIN tidewheel_step_ids AS used ON used.run_key = run.run_key AND used.step_id = ask.p;
        found := found || jsonb_build_object('step_ids', part);
    END IF;
    IF asked ? 'events' THEN
        SELECT jsonb_agg(jsonb_build_array(row.run_key, row.first_seq, row.last_seq, row.at, row.codec, row.data,
                                           row.checksum)
                         ORDER BY row.run_key, row.first_seq) INTO part
          FROM jsonb_to_recordset(asked -> 'events') AS ask(n text, r text, "from" bigint, "to" bigint)
          CROSS JOIN LATERAL (SELECT * FROM tidewheel_runs WHERE namespace = ask.n AND run_id = ask.r LIMIT 1) AS run
          CROSS JOIN LATERAL (SELECT *
                                FROM tidewheel_journal AS passage
                               WHERE passage.run_key = run.run_key
                                 AND passage.first_seq <= coalesce(ask."to", run.last_seq)
                                 AND passage.first_seq >= coalesce(
                                     (SELECT max(first_seq) FROM tidewheel_journal AS earlier
                                       WHERE earlier.run_key = run.run_key AND earlier.first_seq <= ask."from"), 0)
                             ) AS row
         WHERE row.last_seq >= ask."from";
        found := found || jsonb_build_object('events', part);
    END IF;
    RETURN found;
END
$$;
