"""The store in Postgres: functions in the database, and the shared rules over what they give out."""
