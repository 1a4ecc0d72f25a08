"""`broker serve`: the parent process, its children, and what they need before they serve."""
