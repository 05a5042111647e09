"""``tidewheel queue``: how many runs of a queue may be under way."""
