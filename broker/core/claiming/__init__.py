"""Decides when to claim messages, and for which subscriptions."""
