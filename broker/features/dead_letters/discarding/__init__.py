"""Drops dead letters and outstanding messages for good."""
