"""What users import: apps, contexts, clients and the errors they meet."""
