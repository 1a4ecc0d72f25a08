"""Exports retained messages, imports messages, and copies topics."""
