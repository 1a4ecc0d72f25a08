"""The HTTP client of pushes: names, addresses, connections, TLS."""
