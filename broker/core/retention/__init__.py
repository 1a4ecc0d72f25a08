"""Gives space back: partitions, stragglers and rows that nothing needs any more."""
