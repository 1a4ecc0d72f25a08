"""Limits of the memory, turns and slots that concurrent calls of a process use."""
