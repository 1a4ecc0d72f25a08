"""Transforms messages before a topic stores them, or before a subscription delivers them."""
