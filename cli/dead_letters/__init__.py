"""``tidewheel dlq``: events that could not be published, looked at, tried again, or let go."""
