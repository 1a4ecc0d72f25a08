"""Reports the delivery of a message to each subscription of its topic."""
