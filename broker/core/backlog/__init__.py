"""The backlog of a subscription: delivery states of messages; makes messages pending again, and removes them."""
