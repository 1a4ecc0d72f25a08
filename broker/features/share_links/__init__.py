"""Share links: the pushes of one subscription in the console, for the owner of its endpoint."""
