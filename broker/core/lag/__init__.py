"""The lag of subscriptions, and the limits that hold up their delivery."""
