"""Deletes subscriptions that are not used, as their expiration policies say."""
