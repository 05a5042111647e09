"""The journal: what happened to a run, the rules it keeps, and how it is read and written."""
