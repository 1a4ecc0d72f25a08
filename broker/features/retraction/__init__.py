"""Withdraws messages from a topic, and publishes others in their place."""
