-- The store's clock: microseconds since the epoch, by the database. It moves within a transaction.
CREATE OR REPLACE FUNCTION tidewheel_now_v1() RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
$$;
