-- Write what a group of appends came to, if the runs concerned are as the caller knows them.
--
-- *known_keys* are the runs that were there before, each with its revision. Every append counts it up, so if it is the
-- same, so is all else but for when a keeper looks next. If one of them has another, or somebody holds its lock, or the
-- caller's clock is off, nothing is written and "stale" is true: the caller looks first, and does it again. Runs that
-- are new have none, and their *names* are locked as in tidewheel_lock_v2; one that is there already fails on its key.
--
-- It is stale too if a run is started in a queue that has a limit: whoever asks first is told how many there are.
--
-- When the events happened is for this clock to say; the caller's idea of it, *event_at*, only has to be near.
--
-- What nearly every append writes comes as one array per column. *run_keys* are runs of whose journals a passage is
-- written, and have *first_seqs* to *publics*. First come those that moved on, *moved* of them, which are the first of
-- *known_keys* too; then those that are started, which also have *started_keys* to *reply_tos*. Both have *phases* to
-- *ended_ats*; what comes after them is written beside that. *cleared_keys* are runs of which nothing stays open. All else
-- is in *written*, as for tidewheel_write_v2, and comes last: what is cleared goes before anything new comes.
--
-- A row that is locked stays where it is, so it is written by its place: its key is looked up once.
--
-- Keys are asked for twice, by a join and by ANY: a plan that was made while the tables were small must not go through
-- all of them later.
--
-- Why nobody waits in a circle: nobody waits. What somebody else has makes it stale.
--
-- Why it sees what is there: a row that was changed since the statement's snapshot was taken is read again once its
-- lock is had, so the revision that is looked at is the last one.
CREATE OR REPLACE FUNCTION tidewheel_write_known_v2(
    names bigint[], known_keys bytea[], revisions bigint[], moved integer, own_clock boolean, event_at bigint,
    run_keys bytea[], first_seqs bigint[], last_seqs bigint[], datas bytea[], checksums bigint[], publics bytea[],
    phases text[], tokens bytea[], inline text[], owners text[], messages text[], wake_ats bigint[], prev_seqs bigint[],
    unkeyed bigint[], ended_ats bigint[],
    started_keys bytea[], namespaces text[], run_ids text[], workflows text[], versions text[], digests text[],
    queues text[], started_ids text[], reply_tos text[],
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
    places tid[];
    written_runs integer;
BEGIN
    now := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
    happened_at := CASE WHEN own_clock THEN now ELSE event_at END;
    stale := own_clock AND abs(now - event_at) > apart_max;
    IF stale THEN
        RETURN;
    END IF;
    IF cardinality(started_keys) > 0 THEN
        SELECT EXISTS (SELECT FROM tidewheel_admission AS limited
                        WHERE (limited.namespace, limited.queue) IN (SELECT * FROM unnest(namespaces, queues)))
          INTO stale;
        IF stale THEN
            RETURN;
        END IF;
    END IF;
    IF written ? 'new_runs' THEN
        SELECT EXISTS (SELECT FROM tidewheel_admission AS limited
                         JOIN jsonb_to_recordset(written -> 'new_runs') AS new(namespace text, queue text)
                           ON limited.namespace = new.namespace AND limited.queue = new.queue)
          INTO stale;
        IF stale THEN
            RETURN;
        END IF;
    END IF;
    FOREACH name IN ARRAY names LOOP
        IF NOT pg_try_advisory_xact_lock(name) THEN
            stale := true;
            RETURN;
        END IF;
    END LOOP;
    IF cardinality(known_keys) > 0 THEN
        SELECT array_agg(locked.place ORDER BY locked.number), count(*) < cardinality(known_keys) INTO places, stale
          FROM (SELECT run.ctid AS place, known.number, run.revision AS found, known.revision AS known
                  FROM unnest(known_keys, revisions) WITH ORDINALITY AS known(key, revision, number)
                  JOIN tidewheel_runs AS run ON run.run_key = known.key
                 WHERE run.run_key = ANY (known_keys)
                   FOR UPDATE OF run SKIP LOCKED) AS locked
         WHERE locked.found = locked.known;
        IF stale THEN
            RETURN;
        END IF;
    END IF;
    IF moved > 0 THEN
        UPDATE tidewheel_runs AS run
           SET phase = new.phase,
               last_seq = new.last_seq,
               token = new.token,
               inline_steps = new.inline,
               owner = new.owner,
               owner_message = new.message,
               wake_at = new.wake_at,
               prev_seq = new.prev_seq,
               has_unkeyed_steps = new.unkeyed <> 0,
               updated_at = event_at,
               ended_at = new.ended_at,
               revision = run.revision + 1
          FROM unnest(places[:moved], last_seqs, phases, tokens, inline, owners, messages, wake_ats, prev_seqs, unkeyed,
                      ended_ats)
            AS new(place, last_seq, phase, token, inline, owner, message, wake_at, prev_seq, unkeyed, ended_at)
         WHERE run.ctid = new.place;
        GET DIAGNOSTICS written_runs = ROW_COUNT;
        IF written_runs <> moved THEN
            RAISE EXCEPTION 'tidewheel: % of % locked runs could be written', written_runs, moved;
        END IF;
    END IF;
    IF cardinality(started_keys) > 0 THEN
        INSERT INTO tidewheel_runs
              (run_key, namespace, run_id, workflow, version, digest, queue, started_id, reply_to,
               last_seq, phase, token, inline_steps, owner, owner_message,
               wake_at, prev_seq, has_unkeyed_steps, ended_at,
               cancelling, paused, segment_seq, first_position, hints, deliveries, has_numeric_keys, has_promises,
               strikes, created_at, updated_at)
        SELECT key, namespace, run_id, workflow, version, digest, queue, started_id, reply_to,
               last_seq, phase, token, new.inline, owner, message,
               wake_at, prev_seq, new.unkeyed <> 0, ended_at,
               false, false, 0, 0, 0, 0, false, false,
               0, event_at, event_at
          FROM unnest(started_keys, namespaces, run_ids, workflows, versions, digests, queues, started_ids, reply_tos,
                      last_seqs[moved + 1:], phases[moved + 1:], tokens[moved + 1:], inline[moved + 1:],
                      owners[moved + 1:], messages[moved + 1:], wake_ats[moved + 1:], prev_seqs[moved + 1:],
                      unkeyed[moved + 1:], ended_ats[moved + 1:])
            AS new(key, namespace, run_id, workflow, version, digest, queue, started_id, reply_to,
                   last_seq, phase, token, inline, owner, message, wake_at, prev_seq, unkeyed, ended_at)
         WHERE new.key IS NOT NULL;
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
