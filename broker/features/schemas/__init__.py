"""Schemas that the messages of a topic must satisfy."""
