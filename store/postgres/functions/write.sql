-- Write what a group of appends came to. The caller holds the locks of all runs concerned.
--
-- *written* has a list of rows for each table that changes, by the columns' names, and nothing for the others.
-- Passages of journals come as one array per column, so that their bytes travel as they are; all of them are of one
-- moment. The event bus is owed those that publish anything.
--
-- A row that must not be there yet fails on its key, and with it the transaction: no sequence number is ever
-- given twice, whatever went wrong before.
CREATE OR REPLACE FUNCTION tidewheel_write_v2(
    written jsonb, event_at bigint, run_keys bytea[], first_seqs bigint[], last_seqs bigint[], codecs text[],
    datas bytea[], checksums bigint[], publics bytea[]
) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    IF written ? 'new_runs' THEN
        INSERT INTO tidewheel_runs
              (run_key, namespace, run_id, workflow, version, digest, queue, parent_key, idempotency_key,
               phase, cancelling, paused, last_seq, segment_seq, first_position, token, inline_steps, owner, owner_message,
               wake_at, hints, deliveries, prev_seq, started_id, has_unkeyed_steps, has_numeric_keys, has_promises,
               strikes, parked, parked_reason, reply_to, created_at, updated_at, ended_at, place, admit_at)
        SELECT run_key, namespace, run_id, workflow, version, digest, queue, parent_key, idempotency_key,
               phase, cancelling, paused, last_seq, segment_seq, first_position, token, inline_steps, owner, owner_message,
               wake_at, hints, deliveries, prev_seq, started_id, has_unkeyed_steps, has_numeric_keys, has_promises,
               strikes, parked, parked_reason, reply_to, created_at, updated_at, ended_at, place, admit_at
          FROM jsonb_populate_recordset(NULL::tidewheel_runs, written -> 'new_runs');
    END IF;
    IF written ? 'runs' THEN
        UPDATE tidewheel_runs AS run
           SET version = new.version,
               digest = new.digest,
               queue = new.queue,
               phase = new.phase,
               cancelling = new.cancelling,
               paused = new.paused,
               last_seq = new.last_seq,
               segment_seq = new.segment_seq,
               first_position = new.first_position,
               token = new.token,
               inline_steps = new.inline_steps,
               owner = new.owner,
               owner_message = new.owner_message,
               wake_at = new.wake_at,
               hints = new.hints,
               deliveries = new.deliveries,
               prev_seq = new.prev_seq,
               started_id = new.started_id,
               has_unkeyed_steps = new.has_unkeyed_steps,
               has_numeric_keys = new.has_numeric_keys,
               has_promises = new.has_promises,
               strikes = new.strikes,
               parked = new.parked,
               parked_reason = new.parked_reason,
               reply_to = new.reply_to,
               updated_at = new.updated_at,
               ended_at = new.ended_at,
               -- A process of an older release does not know of places, and leaves them alone.
               place = CASE WHEN written #> '{runs,0}' ? 'place' THEN new.place ELSE run.place END,
               admit_at = CASE WHEN written #> '{runs,0}' ? 'place' THEN new.admit_at ELSE run.admit_at END,
               revision = run.revision + 1
          FROM jsonb_populate_recordset(NULL::tidewheel_runs, written -> 'runs') AS new
         WHERE run.run_key = new.run_key;
    END IF;
    IF cardinality(run_keys) > 0 THEN
        INSERT INTO tidewheel_journal (run_key, first_seq, last_seq, at, codec, data, checksum, public)
        SELECT run_key, first_seq, last_seq, event_at, codec, data, checksum, public
          FROM unnest(run_keys, first_seqs, last_seqs, codecs, datas, checksums, publics)
            AS passage(run_key, first_seq, last_seq, codec, data, checksum, public);
        INSERT INTO tidewheel_outbox (run_key, first_seq, last_seq, created_at, due_at)
        SELECT run_key, first_seq, last_seq, event_at, event_at
          FROM unnest(run_keys, first_seqs, last_seqs, publics) AS owed(run_key, first_seq, last_seq, public)
         WHERE public IS NOT NULL;
    END IF;
    IF written ? 'cleared' THEN
        DELETE FROM tidewheel_steps AS step USING jsonb_array_elements_text(written -> 'cleared') AS key(run_key)
         WHERE step.run_key = key.run_key::bytea;
        DELETE FROM tidewheel_timers AS timer USING jsonb_array_elements_text(written -> 'cleared') AS key(run_key)
         WHERE timer.run_key = key.run_key::bytea;
        DELETE FROM tidewheel_promises AS promise USING jsonb_array_elements_text(written -> 'cleared') AS key(run_key)
         WHERE promise.run_key = key.run_key::bytea;
    END IF;
    IF written ? 'closed_steps' THEN
        DELETE FROM tidewheel_steps AS step
         USING jsonb_to_recordset(written -> 'closed_steps') AS closed(run_key bytea, path text)
         WHERE step.run_key = closed.run_key AND step.path = closed.path;
    END IF;
    IF written ? 'steps' THEN
        INSERT INTO tidewheel_steps
              (run_key, path, kind, function_name, queue, dispatch, state, attempt, scheduled_seq,
               scheduled_at, owner, abandoned, due_at, hints, start_by, close_by, heartbeat_s, beat,
               step_id, key_part, logical_attempt, told, failed, signal_id)
        SELECT run_key, path, kind, function_name, queue, dispatch, state, attempt, scheduled_seq,
               scheduled_at, owner, abandoned, due_at, hints, start_by, close_by, heartbeat_s, beat,
               step_id, key_part, logical_attempt, told, failed, signal_id
          FROM jsonb_populate_recordset(NULL::tidewheel_steps, written -> 'steps')
            ON CONFLICT (run_key, path) DO UPDATE
           SET kind = excluded.kind,
               function_name = excluded.function_name,
               queue = excluded.queue,
               dispatch = excluded.dispatch,
               state = excluded.state,
               attempt = excluded.attempt,
               scheduled_seq = excluded.scheduled_seq,
               scheduled_at = excluded.scheduled_at,
               owner = excluded.owner,
               abandoned = excluded.abandoned,
               due_at = excluded.due_at,
               hints = excluded.hints,
               start_by = excluded.start_by,
               close_by = excluded.close_by,
               heartbeat_s = excluded.heartbeat_s,
               beat = excluded.beat,
               step_id = excluded.step_id,
               key_part = excluded.key_part,
               logical_attempt = excluded.logical_attempt,
               told = excluded.told,
               failed = excluded.failed,
               signal_id = excluded.signal_id;
    END IF;
    IF written ? 'ended_timers' THEN
        DELETE FROM tidewheel_timers AS timer
         USING jsonb_to_recordset(written -> 'ended_timers') AS ended(run_key bytea, path text)
         WHERE timer.run_key = ended.run_key AND timer.path = ended.path;
    END IF;
    IF written ? 'timers' THEN
        INSERT INTO tidewheel_timers (run_key, path, fire_at, due_at)
        SELECT run_key, path, fire_at, due_at
          FROM jsonb_populate_recordset(NULL::tidewheel_timers, written -> 'timers');
    END IF;
    IF written ? 'promises' THEN
        INSERT INTO tidewheel_promises (run_key, name, path, resolved)
        SELECT run_key, name, path, resolved
          FROM jsonb_populate_recordset(NULL::tidewheel_promises, written -> 'promises')
            ON CONFLICT (run_key, name) DO UPDATE
           SET path = excluded.path, resolved = excluded.resolved;
    END IF;
    IF written ? 'facts' THEN
        INSERT INTO tidewheel_facts_seen (run_key, fact)
        SELECT run_key, fact
          FROM jsonb_populate_recordset(NULL::tidewheel_facts_seen, written -> 'facts');
    END IF;
    IF written ? 'step_ids' THEN
        INSERT INTO tidewheel_step_ids AS used (run_key, step_id, attempt)
        SELECT run_key, step_id, attempt
          FROM jsonb_populate_recordset(NULL::tidewheel_step_ids, written -> 'step_ids')
            ON CONFLICT (run_key, step_id) DO UPDATE
           SET attempt = greatest(used.attempt, excluded.attempt);
    END IF;
END
$$;
