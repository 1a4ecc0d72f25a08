"""Lists the entries of the audit log."""
