"""The commands, their options and their help, a module per group. What they do is imported when they run."""
