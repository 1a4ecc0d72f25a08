"""Lists the audit log."""
