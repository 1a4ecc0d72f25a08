"""What the log and the audit log say of calls."""
