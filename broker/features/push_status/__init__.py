"""Reports on the pushes of a subscription (endpoint, attempts, failures), sends test pushes, and pauses pushes."""
