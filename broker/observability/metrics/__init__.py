"""Counters in shared memory, and their exposition."""
