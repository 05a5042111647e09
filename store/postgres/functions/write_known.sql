-- Write what a group of appends came to, if the runs concerned are as the caller knows them.
--
-- *known* are the runs that were there before, each with its mark: the transaction that wrote its row last. Whoever
-- changes anything of a run writes its row, so if the mark is the same, so is all else. If one of them has another,
-- or somebody holds its lock, or the caller's clock is off, nothing is written and "stale" is true: the caller looks
-- first, and does it again. Runs that are new have no mark, and their *names* are locked as in tidewheel_lock_v1; one
-- that is there already fails on its key.
--
-- When the events happened is for this clock to say; the caller's idea of it, *event_at*, only has to be near.
--
-- Why nobody waits in a circle: nobody waits. What somebody else has makes it stale.
--
-- Why it sees what is there: the locks are taken by statements of their own; the marks are looked at by the next
-- one, whose snapshot is younger.
CREATE OR REPLACE FUNCTION tidewheel_write_known_v1(
    names bigint[], known_keys bytea[], marks text[], own_clock boolean,
    written jsonb, event_at bigint, run_keys bytea[], run_seqs bigint[], types text[], versions bigint[],
    codecs text[], datas bytea[], checksums bigint[], public_keys bytea[], prev_seqs bigint[], publics bytea[],
    OUT stale boolean, OUT mark text, OUT now bigint
)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    -- How far the caller's idea of the time may be from ours, in microseconds.
    apart_max CONSTANT bigint := 1000000;
    name bigint;
BEGIN
    now := tidewheel_now_v1();
    stale := own_clock AND abs(now - event_at) > apart_max;
    IF stale THEN
        RETURN;
    END IF;
    FOREACH name IN ARRAY names LOOP
        IF NOT pg_try_advisory_xact_lock(name) THEN
            stale := true;
            RETURN;
        END IF;
    END LOOP;
    IF cardinality(known_keys) > 0 THEN
        SELECT count(*) < cardinality(known_keys) INTO stale
          FROM (SELECT FROM tidewheel_runs WHERE run_key = ANY (known_keys) FOR UPDATE SKIP LOCKED) AS locked;
        IF stale THEN
            RETURN;
        END IF;
        SELECT count(*) < cardinality(known_keys) INTO stale
          FROM unnest(known_keys, marks) AS known(key, mark)
          JOIN tidewheel_runs AS run ON run.run_key = known.key
         WHERE run.xmin::text = known.mark;
        IF stale THEN
            RETURN;
        END IF;
    END IF;
    PERFORM tidewheel_write_v1(written, CASE WHEN own_clock THEN now ELSE event_at END, run_keys, run_seqs, types, versions, codecs, datas, checksums,
                               public_keys, prev_seqs, publics);
    mark := pg_current_xact_id()::xid::text;
END
$$;
