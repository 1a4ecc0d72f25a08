"""Frees space: drops partitions, and deletes stragglers and rows that are not needed any more."""
