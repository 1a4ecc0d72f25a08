"""The certificate authorities that pushes over TLS trust."""

import ssl
from functools import cache


@cache  # reading the system's authorities takes 30 ms
def make_tls_context(ca_file: str) -> ssl.SSLContext:
    """The system's certificate authorities, and those of `ca_file` ("": none).  Raises OSError."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    if ca_file:
        context.load_verify_locations(ca_file)
    return context
