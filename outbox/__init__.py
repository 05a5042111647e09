"""What publishes to the event bus: the relay, its pauses, and dead letters."""
