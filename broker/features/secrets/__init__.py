"""Encrypts the secrets in the database again when there is a new key."""
