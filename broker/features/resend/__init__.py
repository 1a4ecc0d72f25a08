"""Delivers retained messages once more to one subscription."""
