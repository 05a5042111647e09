-- Write what a group of appends came to, if the runs concerned are as the caller knows them.
--
-- *known_keys* are the runs that were there before, each with its mark: the transaction that wrote its row last.
-- Whoever changes anything of a run writes its row, so if the mark is the same, so is all else. If one of them has
-- another, or somebody holds its lock, or the caller's clock is off, nothing is written and "stale" is true: the
-- caller looks first, and does it again. Runs that are new have no mark, and their *names* are locked as in
-- tidewheel_lock_v1; one that is there already fails on its key.
--
-- When the events happened is for this clock to say; the caller's idea of it, *event_at*, only has to be near.
--
-- What nearly every append writes comes as one array per column: a run that moved on (moved_), a step that was
-- opened and has nothing special (opened_), one that was closed (closed_), what the bus is owed (owed_), the runs of
-- which nothing stays open (cleared_keys). An event without a version is of version 1, one without a codec is JSON.
-- All else is in *written*, as for tidewheel_write_v1, and comes last: what is cleared goes before anything new comes.
--
-- Keys are asked for twice, by a join and by ANY: a plan that was made while the tables were small must not go through
-- all of them later.
--
-- Why nobody waits in a circle: nobody waits. What somebody else has makes it stale.
--
-- Why it sees what is there: a row that was changed since the statement's snapshot was taken is read again once its
-- lock is had, so the mark that is looked at is the last one.
CREATE OR REPLACE FUNCTION tidewheel_write_known_v1(
    names bigint[], known_keys bytea[], marks text[], own_clock boolean, event_at bigint,
    run_keys bytea[], run_seqs bigint[], types text[], versions bigint[], codecs text[], datas bytea[],
    checksums bigint[], public_keys bytea[], prev_seqs bigint[], publics bytea[],
    moved_keys bytea[], moved_phases text[], moved_last_seqs bigint[], moved_tokens bytea[], moved_messages text[],
    moved_wake_ats bigint[], moved_prev_seqs bigint[], moved_unkeyed bigint[], moved_ended_ats bigint[],
    opened_keys bytea[], opened_paths text[], opened_functions text[], opened_queues text[], opened_seqs bigint[],
    opened_owners text[], opened_due_ats bigint[],
    closed_keys bytea[], closed_paths text[], owed_keys bytea[], owed_firsts bigint[], owed_lasts bigint[],
    cleared_keys bytea[], written jsonb,
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
          FROM (SELECT run.xmin::text AS found, known.mark AS known
                  FROM unnest(known_keys, marks) AS known(key, mark)
                  JOIN tidewheel_runs AS run ON run.run_key = known.key
                 WHERE run.run_key = ANY (known_keys)
                   FOR UPDATE OF run SKIP LOCKED) AS locked
         WHERE locked.found = locked.known;
        IF stale THEN
            RETURN;
        END IF;
    END IF;
    IF cardinality(moved_keys) > 0 THEN
        UPDATE tidewheel_runs AS run
           SET phase = moved.phase,
               last_seq = moved.last_seq,
               token = moved.token,
               owner_message = moved.message,
               wake_at = moved.wake_at,
               prev_seq = moved.prev_seq,
               has_unkeyed_steps = moved.unkeyed <> 0,
               updated_at = event_at,
               ended_at = moved.ended_at
          FROM unnest(moved_keys, moved_phases, moved_last_seqs, moved_tokens, moved_messages, moved_wake_ats,
                      moved_prev_seqs, moved_unkeyed, moved_ended_ats)
            AS moved(key, phase, last_seq, token, message, wake_at, prev_seq, unkeyed, ended_at)
         WHERE run.run_key = moved.key AND run.run_key = ANY (moved_keys);
    END IF;
    IF cardinality(run_seqs) > 0 THEN
        INSERT INTO tidewheel_events
              (run_key, run_seq, at, type, version, codec, data, checksum, public_key, prev_seq, public)
        SELECT run_key, run_seq, CASE WHEN own_clock THEN now ELSE event_at END, type, coalesce(version, 1),
               coalesce(codec, 'json'), data, checksum, public_key, prev_seq, public
          FROM unnest(run_keys, run_seqs, types, versions, codecs, datas, checksums, public_keys, prev_seqs,
                      publics)
            AS event(run_key, run_seq, type, version, codec, data, checksum, public_key, prev_seq, public);
    END IF;
    IF cardinality(owed_keys) > 0 THEN
        INSERT INTO tidewheel_outbox (run_key, first_seq, last_seq, created_at, due_at)
        SELECT key, first_seq, last_seq, event_at, event_at
          FROM unnest(owed_keys, owed_firsts, owed_lasts) AS owed(key, first_seq, last_seq);
    END IF;
    IF cardinality(cleared_keys) > 0 THEN
        DELETE FROM tidewheel_steps WHERE run_key = ANY (cleared_keys);
        DELETE FROM tidewheel_timers WHERE run_key = ANY (cleared_keys);
        DELETE FROM tidewheel_promises WHERE run_key = ANY (cleared_keys);
    END IF;
    IF cardinality(closed_keys) > 0 THEN
        DELETE FROM tidewheel_steps AS step
         USING unnest(closed_keys, closed_paths) AS closed(key, path)
         WHERE step.run_key = closed.key AND step.path = closed.path AND step.run_key = ANY (closed_keys);
    END IF;
    IF cardinality(opened_keys) > 0 THEN
        INSERT INTO tidewheel_steps
              (run_key, path, kind, function_name, queue, dispatch, state, attempt, scheduled_seq, scheduled_at,
               owner, abandoned, due_at, hints, step_id, key_part, logical_attempt, failed)
        SELECT key, path, 'function', function_name, queue, 'inline', 'scheduled', 0, seq, event_at,
               owner, false, due_at, 0, path, path, 1, false
          FROM unnest(opened_keys, opened_paths, opened_functions, opened_queues, opened_seqs, opened_owners,
                      opened_due_ats)
            AS opened(key, path, function_name, queue, seq, owner, due_at);
    END IF;
    IF written IS NOT NULL THEN
        PERFORM tidewheel_write_v1(written, event_at, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}');
    END IF;
    mark := pg_current_xact_id()::xid::text;
END
$$;
