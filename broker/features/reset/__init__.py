"""Deletes all resources of a project, for tests."""
