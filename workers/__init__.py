"""What executes runs: workers that replay and run tasks, and the keeper that wakes what sleeps."""
