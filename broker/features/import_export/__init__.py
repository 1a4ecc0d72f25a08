"""Exports retained messages, imports messages, copies a topic to another."""
