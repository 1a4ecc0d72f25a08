"""Service accounts, keys, roles and policies: the calls of Google's IAM."""
