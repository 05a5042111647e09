"""Where journals live: the one write path, and the stores that keep to it."""
