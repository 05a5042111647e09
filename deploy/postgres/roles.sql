-- The accounts of a new database, with their passwords from mounted secrets.
--
-- The image runs this once, when its data directory is empty, as the superuser and in the database that
-- POSTGRES_DB names. What each account may do is granted by `tidewheel db migrate --roles`, which leaves roles
-- that exist as they are. The migrator owns the database, and is no superuser: it owns what it makes in it.

\set ON_ERROR_STOP on
\set migrator `cat /run/secrets/postgres_migrator`
\set worker `cat /run/secrets/postgres_worker`
\set keeper `cat /run/secrets/postgres_keeper`

CREATE ROLE tidewheel_migrator LOGIN PASSWORD :'migrator';
CREATE ROLE tidewheel_worker LOGIN PASSWORD :'worker';
CREATE ROLE tidewheel_keeper LOGIN PASSWORD :'keeper';

SELECT current_database() AS database \gset
ALTER DATABASE :"database" OWNER TO tidewheel_migrator;
REVOKE ALL ON DATABASE :"database" FROM PUBLIC;
GRANT CONNECT ON DATABASE :"database" TO tidewheel_worker, tidewheel_keeper;
