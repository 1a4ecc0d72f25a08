"""The entries about calls in the log and in the audit log."""
