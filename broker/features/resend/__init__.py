"""Delivers retained messages again to one subscription."""
