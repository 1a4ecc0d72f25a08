"""The web console: pages, rendered by the server, about what the API answers."""
