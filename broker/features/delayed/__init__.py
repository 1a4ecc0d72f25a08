"""Scheduled messages, which are published at a time that their publisher names."""
