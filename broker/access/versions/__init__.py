"""The version of credentials, roles and policies, and the changes of each version."""
