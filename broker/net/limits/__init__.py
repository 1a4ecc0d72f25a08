"""Limits of connections and of the size of requests."""
