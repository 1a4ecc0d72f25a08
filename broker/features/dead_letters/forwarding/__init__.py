"""Moves messages that failed too often to their dead-letter topics."""
