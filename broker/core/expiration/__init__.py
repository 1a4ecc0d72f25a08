"""Deletes subscriptions that nobody uses, as their expiration policies say."""
