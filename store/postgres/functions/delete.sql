-- Deleting runs that have ended, with all that is theirs. A keeper can do it in this way alone.

-- Delete these runs, but for their events: those go with their partition, or are deleted before.
CREATE OR REPLACE FUNCTION tidewheel_delete_rows_v2(keys bytea[]) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    DELETE FROM tidewheel_steps WHERE run_key = ANY (keys);
    DELETE FROM tidewheel_timers WHERE run_key = ANY (keys);
    DELETE FROM tidewheel_promises WHERE run_key = ANY (keys);
    DELETE FROM tidewheel_facts_seen WHERE run_key = ANY (keys);
    DELETE FROM tidewheel_step_ids WHERE run_key = ANY (keys);
    DELETE FROM tidewheel_outbox WHERE run_key = ANY (keys);
    DELETE FROM tidewheel_snapshots WHERE run_key = ANY (keys);
    DELETE FROM tidewheel_snapshot_steps WHERE run_key = ANY (keys);
    DELETE FROM tidewheel_projections WHERE run_key = ANY (keys);
    DELETE FROM tidewheel_runs WHERE run_key = ANY (keys);
END
$$;

-- Delete these runs. Whoever calls it has looked that they have ended.
CREATE OR REPLACE FUNCTION tidewheel_delete_v2(keys bytea[]) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    DELETE FROM tidewheel_journal WHERE run_key = ANY (keys);
    PERFORM tidewheel_delete_rows_v2(keys);
END
$$;

-- Delete the runs that ended longest ago, of those that ended before a time; return how many went.
--
-- A run is kept while one of its tree is there: started again under its id, it would meet its old children.
-- Their ids begin with its own and a colon; run ids are compared byte by byte, so they are a range.
CREATE OR REPLACE FUNCTION tidewheel_retire_runs_v2(the_namespace text, ended_before bigint, limit_max integer)
    RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT
AS $$
DECLARE
    keys bytea[];
BEGIN
    SELECT array_agg(old.run_key) INTO keys
      FROM (SELECT run.run_key
              FROM tidewheel_runs AS run
             WHERE run.namespace = the_namespace AND run.ended_at < ended_before
               AND NOT EXISTS (SELECT FROM tidewheel_runs AS part
                                WHERE part.namespace = run.namespace
                                  AND part.run_id > run.run_id || ':' AND part.run_id < run.run_id || ';')
             ORDER BY run.ended_at
             LIMIT limit_max
               FOR UPDATE OF run SKIP LOCKED) AS old;
    PERFORM tidewheel_delete_v2(keys);
    RETURN coalesce(cardinality(keys), 0);
END
$$;
