"""Stores a message once that is published repeatedly within a window."""
