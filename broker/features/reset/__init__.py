"""Deletes all that a project has, for tests."""
