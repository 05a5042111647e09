"""What ``dev``, ``up``, ``worker`` and ``keeper`` do: roles, started and stopped together."""
