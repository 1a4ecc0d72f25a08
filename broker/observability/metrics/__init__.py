"""Counters in shared memory, and how they are exposed."""
