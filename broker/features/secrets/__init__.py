"""Encrypts secrets in the database anew when there is a new key."""
