"""Declares a project in files: `broker apply` and `broker export`."""
