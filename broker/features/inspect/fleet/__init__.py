"""Reports on the broker itself: its processes, its database, its settings, and what an operator should see to."""
