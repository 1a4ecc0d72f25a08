"""Topics and subscriptions: services and calls."""
