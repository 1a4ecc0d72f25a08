"""The names in a client's certificate that TLS has verified."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """Signed by an authority of --tls-client-ca, and valid when the connection began.

    `names` are its subject alternative names (RFC 5280, section 4.2.1.6) as Python's ssl gives them: ("DNS",
    "worker.example.com"), ("URI", "spiffe://example.com/worker"), ("email", …), ("IP Address", …).
    `fingerprint`: SHA-256 of the certificate, in small hexadecimal digits.  `until`: its last second.
    """

    names: tuple[tuple[str, str], ...]
    fingerprint: str
    until: datetime
