"""The store in one SQLite file: no server, and durable all the same."""
