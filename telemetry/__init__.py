"""What is told of a process as traces and metrics: the one place that names OpenTelemetry."""
