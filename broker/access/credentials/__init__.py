"""Credentials of callers: tokens, keys, certificates, issuers."""
