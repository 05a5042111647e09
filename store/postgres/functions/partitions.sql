-- The journal's partitions are ranges of run keys, which begin with the time: partitions by age.
--
-- These functions are the only way in which a keeper makes and drops them. They are executed with the rights of
-- their owner, the migrator; nobody else may delete an event.

-- The first key of a millisecond: six bytes of time and ten of nothing.
CREATE OR REPLACE FUNCTION tidewheel_first_key_v1(at_ms bigint) RETURNS bytea
LANGUAGE sql IMMUTABLE
AS $$
    SELECT decode(lpad(to_hex(at_ms), 12, '0') || repeat('00', 10), 'hex')
$$;

-- The partitions there are, oldest first, with the milliseconds they begin at and end before. The one for what
-- fits nowhere else is not among them.
CREATE OR REPLACE FUNCTION tidewheel_partitions_v1()
    RETURNS TABLE (partition regclass, begins_ms bigint, ends_ms bigint)
LANGUAGE sql STABLE SET bytea_output = 'hex'
AS $$
    SELECT part.oid::regclass,
           ('x0000' || substring(bound.text FROM 'FROM \(''\\x([0-9a-f]{12})'))::bit(64)::bigint,
           ('x0000' || substring(bound.text FROM 'TO \(''\\x([0-9a-f]{12})'))::bit(64)::bigint
      FROM pg_inherits AS link
      JOIN pg_class AS part ON part.oid = link.inhrelid
     CROSS JOIN LATERAL (SELECT pg_get_expr(part.relpartbound, part.oid) AS text) AS bound
     WHERE link.inhparent = 'tidewheel_events'::regclass
       AND bound.text <> 'DEFAULT'
     ORDER BY 2
$$;

-- Make partitions of *days* each until *ahead* of them begin after *now*; return how many were made.
--
-- A table is made beside the journal and then attached, which does not stop those who read and write. Only
-- the partition for the rest is locked for a moment; where that takes too long, the next round tries again.
-- Rows that are in the rest already, since nobody made a partition in time, stay there.
CREATE OR REPLACE FUNCTION tidewheel_make_partitions_v1(now bigint, days integer, ahead integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '1s'
AS $$
DECLARE
    width_ms CONSTANT bigint := days * 86400000::bigint;
    now_ms CONSTANT bigint := now / 1000;
    begins_ms bigint;
    made integer := 0;
    name text;
BEGIN
    IF days < 1 OR ahead < 0 OR ahead > 1000 THEN
        RAISE EXCEPTION 'partitions of % days, % of them ahead, cannot be made', days, ahead;
    END IF;
    IF NOT pg_try_advisory_xact_lock(hashtextextended('tidewheel partitions', 0)) THEN
        RETURN 0;  -- another keeper is at it
    END IF;
    SELECT greatest(max(ends_ms), now_ms / width_ms * width_ms) INTO begins_ms FROM tidewheel_partitions_v1();
    WHILE begins_ms <= now_ms + ahead * width_ms LOOP
        name := 'tidewheel_events_' || to_char(to_timestamp(begins_ms / 1000.0) AT TIME ZONE 'UTC', 'YYYYMMDD');
        IF EXISTS (SELECT FROM tidewheel_events_rest
                    WHERE run_key >= tidewheel_first_key_v1(begins_ms)
                      AND run_key < tidewheel_first_key_v1(begins_ms + width_ms)) THEN
            begins_ms := begins_ms + width_ms;
            CONTINUE;
        END IF;
        EXECUTE format('CREATE TABLE %I (LIKE tidewheel_events INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', name);
        EXECUTE format('ALTER TABLE tidewheel_events ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', name,
                       tidewheel_first_key_v1(begins_ms), tidewheel_first_key_v1(begins_ms + width_ms));
        made := made + 1;
        begins_ms := begins_ms + width_ms;
    END LOOP;
    RETURN made;
END
$$;

-- Drop the partitions all of whose runs are of this namespace, ended before a time, and have no children in a
-- later partition; delete what else is theirs. Return how many runs went. Dropping a table costs the same however
-- much is in it.
CREATE OR REPLACE FUNCTION tidewheel_retire_partitions_v1(the_namespace text, ended_before bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '1s'
AS $$
DECLARE
    part record;
    keys bytea[];
    retired bigint := 0;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended('tidewheel partitions', 0)) THEN
        RETURN 0;
    END IF;
    FOR part IN SELECT * FROM tidewheel_partitions_v1() WHERE ends_ms * 1000 <= ended_before LOOP
        CONTINUE WHEN EXISTS (
            SELECT FROM tidewheel_runs AS run
             WHERE run.run_key >= tidewheel_first_key_v1(part.begins_ms)
               AND run.run_key < tidewheel_first_key_v1(part.ends_ms)
               AND (run.namespace <> the_namespace OR run.ended_at IS NULL OR run.ended_at >= ended_before
                    OR EXISTS (SELECT FROM tidewheel_runs AS child
                                WHERE child.namespace = run.namespace
                                  AND child.run_id > run.run_id || ':' AND child.run_id < run.run_id || ';'
                                  AND child.run_key >= tidewheel_first_key_v1(part.ends_ms))));
        BEGIN
            EXECUTE format('DROP TABLE %s', part.partition);
        EXCEPTION WHEN lock_not_available THEN
            CONTINUE;  -- somebody reads it: the next round tries again
        END;
        SELECT array_agg(run_key) INTO keys
          FROM tidewheel_runs
         WHERE run_key >= tidewheel_first_key_v1(part.begins_ms)
           AND run_key < tidewheel_first_key_v1(part.ends_ms);
        PERFORM tidewheel_delete_v1(keys);
        retired := retired + coalesce(cardinality(keys), 0);
    END LOOP;
    RETURN retired;
END
$$;
