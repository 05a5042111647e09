"""The embedded broker: queues in a SQLite file that processes of one machine share, as a kombu transport."""
