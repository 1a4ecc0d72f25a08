"""Fair sharing of what can run out: turns, capacity, and the waiting for them."""
