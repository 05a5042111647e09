-- Roles, so that a journal is append-only by privilege. They cannot log in: grant them to those who do, as in
--   CREATE USER shop_worker PASSWORD '...' IN ROLE tidewheel_worker;
--
--   tidewheel_migrator   owns everything: changes the schema
--   tidewheel_worker     executes runs, and starts and signals them: workers and clients
--   tidewheel_keeper     as a worker; also retires runs and makes partitions, only through the functions for it, and limits queues
--   tidewheel_relay      publishes what the event bus is owed
--   tidewheel_projector  reads events, and keeps snapshots and projections
--   tidewheel_reader     reads
--
-- Executing it again changes nothing.
DO $$
DECLARE
    role text;
    thing record;
BEGIN
    FOREACH role IN ARRAY ARRAY['tidewheel_migrator', 'tidewheel_worker', 'tidewheel_keeper', 'tidewheel_relay',
                                'tidewheel_projector', 'tidewheel_reader'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', role);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL;  -- roles are the whole server's: somebody made it for another database just now
            END;
        END IF;
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), role);
    END LOOP;

    IF NOT pg_has_role(current_user, 'tidewheel_migrator', 'MEMBER') THEN
        EXECUTE format('GRANT tidewheel_migrator TO %I', current_user);
    END IF;
    EXECUTE format('GRANT CREATE ON SCHEMA %I TO tidewheel_migrator', current_schema());
    FOR thing IN SELECT oid::regclass AS name FROM pg_class
                  WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p')
                    AND relname LIKE 'tidewheel\_%' LOOP
        EXECUTE format('ALTER TABLE %s OWNER TO tidewheel_migrator', thing.name);
    END LOOP;
    FOR thing IN SELECT oid::regprocedure AS name FROM pg_proc
                  WHERE pronamespace = current_schema()::regnamespace AND proname LIKE 'tidewheel\_%' LOOP
        EXECUTE format('ALTER FUNCTION %s OWNER TO tidewheel_migrator', thing.name);
    END LOOP;
END
$$;

GRANT SELECT ON tidewheel_version, tidewheel_runs, tidewheel_journal, tidewheel_steps, tidewheel_timers,
                tidewheel_promises, tidewheel_facts_seen, tidewheel_step_ids, tidewheel_outbox, tidewheel_workers,
                tidewheel_snapshots, tidewheel_snapshot_steps, tidewheel_projections, tidewheel_projectors,
                tidewheel_admission
   TO tidewheel_worker, tidewheel_keeper, tidewheel_relay, tidewheel_projector, tidewheel_reader;

-- What an append does. Nobody here may update or delete an event, or delete a run.
GRANT INSERT ON tidewheel_journal, tidewheel_facts_seen, tidewheel_outbox TO tidewheel_worker, tidewheel_keeper;
GRANT INSERT, UPDATE ON tidewheel_runs, tidewheel_step_ids, tidewheel_promises TO tidewheel_worker, tidewheel_keeper;
GRANT INSERT, UPDATE, DELETE ON tidewheel_steps, tidewheel_timers, tidewheel_workers
   TO tidewheel_worker, tidewheel_keeper;
GRANT DELETE ON tidewheel_promises TO tidewheel_worker, tidewheel_keeper;

GRANT UPDATE, DELETE ON tidewheel_outbox TO tidewheel_relay;

-- Deleting is what a rebuild does, and what is done about remains of runs that were retired meanwhile.
GRANT INSERT, UPDATE, DELETE
   ON tidewheel_snapshots, tidewheel_snapshot_steps, tidewheel_projections, tidewheel_projectors
   TO tidewheel_projector;

-- Whoever starts a run locks the limit of its queue, for which Postgres wants leave to update something of it. Only a
-- keeper's account sets limits.
GRANT UPDATE (updated_at) ON tidewheel_admission TO tidewheel_worker;
GRANT INSERT, UPDATE, DELETE ON tidewheel_admission TO tidewheel_keeper;

REVOKE EXECUTE ON FUNCTION tidewheel_retire_runs_v2, tidewheel_retire_partitions_v2, tidewheel_make_partitions_v2,
                           tidewheel_delete_v2, tidewheel_delete_rows_v2
  FROM PUBLIC;
GRANT EXECUTE ON FUNCTION tidewheel_retire_runs_v2, tidewheel_retire_partitions_v2, tidewheel_make_partitions_v2
   TO tidewheel_keeper;
