"""Topics and subscriptions: the services and the calls."""
