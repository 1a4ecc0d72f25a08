"""The HTTP request that carries messages to an endpoint: envelope, headers, signature, token."""
