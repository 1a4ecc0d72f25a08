"""Urgent messages first, on topics that have levels of priority."""
