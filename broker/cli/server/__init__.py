"""`broker serve`: the parent process, its children, and the preparations before they serve."""
