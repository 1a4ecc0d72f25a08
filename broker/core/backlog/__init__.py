"""How a message stands with a subscription; makes messages pending again, and removes them."""
