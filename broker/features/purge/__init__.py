"""Drops the messages of a topic, or those of a subscription that a filter matches."""
