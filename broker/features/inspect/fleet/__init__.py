"""Reports on the broker itself: its processes, its database, its settings, and findings that need an operator."""
