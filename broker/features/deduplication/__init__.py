"""Stores messages only once that are published repeatedly within a window."""
