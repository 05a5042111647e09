-- The accounts of a new database, with their passwords from mounted secrets.
--
-- The image executes this once, when its data directory is empty, as the superuser and in the database that
-- POSTGRES_DB names. An account (app_...) can log in and has a role of Tidewheel's (tidewheel_...), which cannot;
-- what the roles may do is granted by `tidewheel db migrate --roles`. That leaves roles as they are that exist, so
-- the migrator need not be able to make any: it owns the database and is no superuser.

\set ON_ERROR_STOP on
\set migrator `cat /run/secrets/postgres_migrator`
\set worker `cat /run/secrets/postgres_worker`
\set keeper `cat /run/secrets/postgres_keeper`
\set relay `cat /run/secrets/postgres_relay`
\set projector `cat /run/secrets/postgres_projector`
\set client `cat /run/secrets/postgres_client`

CREATE ROLE tidewheel_migrator;
CREATE ROLE tidewheel_worker;
CREATE ROLE tidewheel_keeper;
CREATE ROLE tidewheel_relay;
CREATE ROLE tidewheel_projector;
CREATE ROLE tidewheel_reader;

CREATE ROLE app_migrator LOGIN PASSWORD :'migrator' IN ROLE tidewheel_migrator;
CREATE ROLE app_worker LOGIN PASSWORD :'worker' IN ROLE tidewheel_worker;
CREATE ROLE app_keeper LOGIN PASSWORD :'keeper' IN ROLE tidewheel_keeper;
CREATE ROLE app_relay LOGIN PASSWORD :'relay' IN ROLE tidewheel_relay;
CREATE ROLE app_projector LOGIN PASSWORD :'projector' IN ROLE tidewheel_projector;
-- A client starts and signals runs, which is an append like a worker's.
CREATE ROLE app_client LOGIN PASSWORD :'client' IN ROLE tidewheel_worker;

SELECT current_database() AS database \gset
ALTER DATABASE :"database" OWNER TO tidewheel_migrator;
REVOKE ALL ON DATABASE :"database" FROM PUBLIC;
GRANT CONNECT ON DATABASE :"database"
   TO tidewheel_worker, tidewheel_keeper, tidewheel_relay, tidewheel_projector, tidewheel_reader;
