"""Fair sharing of limited resources: turns, capacity, and waiting for them."""
