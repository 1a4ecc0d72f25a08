"""Transforms of messages, before a topic stores them or a subscription delivers them."""
