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
CREATE OR REPLACE FUNCTION tidewheel_partitions_v2()
    RETURNS TABLE (partition regclass, begins_ms bigint, ends_ms bigint)
LANGUAGE sql STABLE SET bytea_output = 'hex'
AS $$
    SELECT part.oid::regclass,
           ('x0000' || substring(bound.text FROM 'FROM \(''\\x([0-9a-f]{12})'))::bit(64)::bigint,
           ('x0000' || substring(bound.text FROM 'TO \(''\\x([0-9a-f]{12})'))::bit(64)::bigint
      FROM pg_inherits AS link
      JOIN pg_class AS part ON part.oid = link.inhrelid
     CROSS JOIN LATERAL (SELECT pg_get_expr(part.relpartbound, part.oid) AS text) AS bound
     WHERE link.inhparent = 'tidewheel_journal'::regclass
       AND bound.text <> 'DEFAULT'
     ORDER BY 2
$$;

-- Make partitions of *days* each until *ahead* of them begin after *now*; return how many were made.
--
-- A table is made beside the journal and then attached, which does not stop those who read and write. Only
-- the partition for the rest is locked for a moment; where that takes too long, the next round tries again.
-- Rows that are in the rest already, since nobody made a partition in time, stay there.
CREATE OR REPLACE FUNCTION tidewheel_make_partitions_v2(now bigint, days integer, ahead integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '1s'
AS $$
<<make_partitions>>
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
    -- What a clock made that was far ahead for a while does not count: it would keep all others from being made.
    SELECT greatest(max(part.ends_ms), now_ms / width_ms * width_ms) INTO begins_ms
      FROM tidewheel_partitions_v2() AS part
     WHERE part.begins_ms <= now_ms + ahead * width_ms;
    WHILE begins_ms <= now_ms + ahead * width_ms LOOP
        name := 'tidewheel_journal_' || to_char(to_timestamp(begins_ms / 1000.0) AT TIME ZONE 'UTC', 'YYYYMMDD');
        IF EXISTS (SELECT FROM tidewheel_journal_rest
                    WHERE run_key >= tidewheel_first_key_v1(begins_ms)
                      AND run_key < tidewheel_first_key_v1(begins_ms + width_ms))
           OR EXISTS (SELECT FROM tidewheel_partitions_v2() AS part
                       WHERE part.begins_ms < make_partitions.begins_ms + width_ms
                         AND part.ends_ms > make_partitions.begins_ms) THEN
            begins_ms := begins_ms + width_ms;
            CONTINUE;
        END IF;
        EXECUTE format('CREATE TABLE %I (LIKE tidewheel_journal INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', name);
        EXECUTE format('ALTER TABLE tidewheel_journal ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', name,
                       tidewheel_first_key_v1(begins_ms), tidewheel_first_key_v1(begins_ms + width_ms));
        made := made + 1;
        begins_ms := begins_ms + width_ms;
    END LOOP;
    RETURN made;
END
$$;

-- Retire the partitions all of whose runs are of this namespace and ended before a time. Return how many runs went;
-- call it again until none do.
--
-- A partition is dropped once it has no runs any more: to drop a table costs the same however much is in it, but
-- stops all who use the journal, so nothing else is done meanwhile. Before that its runs are deleted, so many in a
-- transaction that nobody waits long for them; their events stay behind, where nobody finds them. As in
-- tidewheel_retire_runs_v2 a run goes after all of its tree.
CREATE OR REPLACE FUNCTION tidewheel_retire_partitions_v2(the_namespace text, ended_before bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '1s'
AS $$
DECLARE
    runs_max CONSTANT integer := 1000;
    part record;
    first_key bytea;
    end_key bytea;
    keys bytea[];
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended('tidewheel partitions', 0)) THEN
        RETURN 0;
    END IF;
    FOR part IN SELECT * FROM tidewheel_partitions_v2() WHERE ends_ms * 1000 <= ended_before LOOP
        first_key := tidewheel_first_key_v1(part.begins_ms);
        end_key := tidewheel_first_key_v1(part.ends_ms);
        CONTINUE WHEN EXISTS (
            SELECT FROM tidewheel_runs
             WHERE run_key >= first_key AND run_key < end_key
               AND (namespace <> the_namespace OR ended_at IS NULL OR ended_at >= ended_before));
        SELECT array_agg(old.run_key) INTO keys
          FROM (SELECT run.run_key
                  FROM tidewheel_runs AS run
                 WHERE run.run_key >= first_key AND run.run_key < end_key
                   AND NOT EXISTS (SELECT FROM tidewheel_runs AS part_of_it
                                    WHERE part_of_it.namespace = run.namespace
                                      AND part_of_it.run_id > run.run_id || ':'
                                      AND part_of_it.run_id < run.run_id || ';')
                 ORDER BY run.run_key
                 LIMIT runs_max
                   FOR UPDATE OF run SKIP LOCKED) AS old;
        IF keys IS NOT NULL THEN
            PERFORM tidewheel_delete_rows_v2(keys);
            RETURN cardinality(keys);
        END IF;
        CONTINUE WHEN EXISTS (SELECT FROM tidewheel_runs WHERE run_key >= first_key AND run_key < end_key);
        BEGIN
            EXECUTE format('DROP TABLE %s', part.partition);
            IF EXISTS (SELECT FROM tidewheel_runs WHERE run_key >= first_key AND run_key < end_key) THEN
                RAISE lock_not_available;  -- one was started while the table's lock was waited for
            END IF;
        EXCEPTION WHEN lock_not_available THEN
            NULL;  -- somebody reads it: the next round tries again
        END;
    END LOOP;
    RETURN 0;
END
$$;
