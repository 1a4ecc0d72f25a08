"""Rows of topics and subscriptions, and the cache of them."""
