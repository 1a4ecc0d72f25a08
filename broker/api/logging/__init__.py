"""Writes calls to the log and to the audit log."""
