"""Encryption of what is secret in the database."""
