"""Lists projects."""
