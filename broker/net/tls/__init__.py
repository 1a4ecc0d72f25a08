"""TLS over the transports of the event loop, and the certificates that it presents and trusts."""
