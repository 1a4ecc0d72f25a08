"""How far behind subscriptions are, and what limits their delivery."""
