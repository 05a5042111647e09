"""What reads the event bus: the projector, which keeps snapshots of runs and users' own projections."""
