"""The audit log: which caller did what."""
