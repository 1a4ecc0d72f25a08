"""TLS over the transports of the event loop, and the certificates it shows and trusts."""
