"""The version of all that access depends on, and what changed with each."""
