"""The backlog of a subscription: reads delivery states, makes messages pending again, and removes messages."""
