"""Authentication and authorization of callers, the audit log, and the encryption of secrets."""
