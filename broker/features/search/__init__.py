"""Searches a project by names, labels, message ids and principals."""
