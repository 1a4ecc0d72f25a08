"""The certificate that a client has shown, once TLS has verified it."""

import asyncio
import hashlib
import ssl
from dataclasses import dataclass
from typing import cast


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """Signed by an authority of --tls-client-ca, and valid when the connection began.

    `names` are its subject alternative names (RFC 5280, section 4.2.1.6) as Python's ssl gives them: ("DNS",
    "worker.example.com"), ("URI", "spiffe://example.com/worker"), ("email", …), ("IP Address", …).
    `fingerprint`: SHA-256 of the certificate, in small hexadecimal digits.
    """

    names: tuple[tuple[str, str], ...]
    fingerprint: str


def client_certificate(transport: asyncio.BaseTransport) -> ClientCertificate | None:
    """Of the client at the other end of a connection; None: it showed none, or speaks no TLS."""
    tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    if tls is None:
        return None
    shown, encoded = tls.getpeercert(), tls.getpeercert(binary_form=True)
    if not shown or encoded is None:
        return None
    names = cast(tuple[tuple[str, str], ...], shown.get("subjectAltName", ()))
    return ClientCertificate(names, hashlib.sha256(encoded).hexdigest())
