-- Write what a group of appends came to, if the runs concerned are as the caller knows them.
--
-- *known_keys* are the runs that were there before, each with its revision. Every append counts it up, so if it is the
-- same, so is all else but for when a keeper looks next. If one of them has another, or somebody holds its lock, or the
-- caller's clock is off, nothing is written and "stale" is true: the caller looks first, and does it again. Runs that
-- are new have none, and their *names* are locked as in tidewheel_lock_v2; one that is there already fails on its key.
--
-- When the events happened is for this clock to say; the caller's idea of it, *event_at*, only has to be near.
--
-- What nearly every append writes comes as one array per column. *run_keys* are runs of whose journals a passage is
-- written, and have *first_seqs* to *publics*. First come those that moved on: they also have *phases* to *ended_ats*, which
-- are shorter by so much. After them come those that are started, which are told by *started_keys* to *reply_tos*.
-- *cleared_keys* are runs of which nothing stays open. All else is in *written*, as for tidewheel_write_v2, and comes
-- last: what is cleared goes before anything new comes.
--
-- Keys are asked for twice, by a join and by ANY: a plan that was made while the tables were small must not go through
-- all of them later.
--
-- Why nobody waits in a circle: nobody waits. What somebody else has makes it stale.
--
-- Why it sees what is there: a row that was changed since the statement's snapshot was taken is read again once its
-- lock is had, so the revision that is looked at is the last one.
CREATE OR REPLACE FUNCTION tidewheel_write_known_v2(
    names bigint[], known_keys bytea[], revisions bigint[], own_clock boolean, event_at bigint,
    run_keys bytea[], first_seqs bigint[], last_seqs bigint[], datas bytea[], checksums bigint[], publics bytea[],
    phases text[], tokens bytea[], inline text[], owners text[], messages text[], wake_ats bigint[], prev_seqs bigint[],
    unkeyed bigint[], ended_ats bigint[],
    started_keys bytea[], namespaces text[], run_ids text[], workflows text[], versions text[], digests text[],
    queues text[], started_ids text[], reply_tos text[], started_wake_ats bigint[],
    cleared_keys bytea[], written jsonb,
    OUT stale boolean, OUT now bigint
)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    -- How far the caller's idea of the time may be from ours, in microseconds.
    apart_max CONSTANT bigint := 1000000;
    name bigint;
    happened_at bigint;
BEGIN
    now := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
    happened_at := CASE WHEN own_clock THEN now ELSE event_at END;
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
          FROM (SELECT run.revision AS found, known.revision AS known
                  FROM unnest(known_keys, revisions) AS known(key, revision)
                  JOIN tidewheel_runs AS run ON run.run_key = known.key
                 WHERE run.run_key = ANY (known_keys)
                   FOR UPDATE OF run SKIP LOCKED) AS locked
         WHERE locked.found = locked.known;
        IF stale THEN
            RETURN;
        END IF;
    END IF;
    IF cardinality(phases) > 0 THEN
        UPDATE tidewheel_runs AS run
           SET phase = moved.phase,
               last_seq = moved.last_seq,
               token = moved.token,
               inline_steps = moved.inline,
               owner = moved.owner,
               owner_message = moved.message,
               wake_at = moved.wake_at,
               prev_seq = moved.prev_seq,
               has_unkeyed_steps = moved.unkeyed <> 0,
               updated_at = event_at,
               ended_at = moved.ended_at,
               revision = run.revision + 1
          FROM unnest(run_keys, last_seqs, phases, tokens, inline, owners, messages, wake_ats, prev_seqs, unkeyed,
                      ended_ats)
            AS moved(key, last_seq, phase, token, inline, owner, message, wake_at, prev_seq, unkeyed, ended_at)
         WHERE run.run_key = moved.key AND run.run_key = ANY (run_keys) AND moved.phase IS NOT NULL;
    END IF;
    IF cardinality(started_keys) > 0 THEN
        INSERT INTO tidewheel_runs
              (run_key, namespace, run_id, workflow, version, digest, queue, phase, cancelling, paused, last_seq,
               segment_seq, first_position, token, inline_steps, wake_at, hints, deliveries, prev_seq, started_id,
               has_unkeyed_steps, has_numeric_keys, has_promises, strikes, reply_to, created_at, updated_at)
        SELECT key, namespace, run_id, workflow, version, digest, queue, 'Running', false, false, 0,
               0, 0, '', '[]', wake_at, 0, 0, 0, started_id,
               false, false, false, 0, reply_to, event_at, event_at
          FROM unnest(started_keys, namespaces, run_ids, workflows, versions, digests, queues, started_ids, reply_tos,
                      started_wake_ats)
            AS run(key, namespace, run_id, workflow, version, digest, queue, started_id, reply_to, wake_at);
    END IF;
    IF cardinality(run_keys) > 0 THEN
        INSERT INTO tidewheel_journal (run_key, first_seq, last_seq, at, codec, data, checksum, public)
        SELECT key, first_seq, last_seq, happened_at, 'json', data, checksum, public
          FROM unnest(run_keys, first_seqs, last_seqs, datas, checksums, publics)
            AS passage(key, first_seq, last_seq, data, checksum, public);
        INSERT INTO tidewheel_outbox (run_key, first_seq, last_seq, created_at, due_at)
        SELECT key, first_seq, last_seq, event_at, event_at
          FROM unnest(run_keys, first_seqs, last_seqs, publics) AS owed(key, first_seq, last_seq, public)
         WHERE public IS NOT NULL;
    END IF;
    IF cardinality(cleared_keys) > 0 THEN
        DELETE FROM tidewheel_steps WHERE run_key = ANY (cleared_keys);
        DELETE FROM tidewheel_timers WHERE run_key = ANY (cleared_keys);
        DELETE FROM tidewheel_promises WHERE run_key = ANY (cleared_keys);
    END IF;
    IF written IS NOT NULL THEN
        PERFORM tidewheel_write_v2(written, event_at, '{}', '{}', '{}', '{}', '{}', '{}', '{}');
    END IF;
END
$$;
