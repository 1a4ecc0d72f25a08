"""Encrypts secrets in the database."""
