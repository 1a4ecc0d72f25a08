"""Values of access: callers, service accounts, keys, policies, roles, permissions."""
