"""The certificate of a client, after TLS has verified it."""

import asyncio
import hashlib
import ssl
from datetime import UTC, datetime
from typing import cast

from broker.model.client_certificate import ClientCertificate


def client_certificate(transport: asyncio.BaseTransport) -> ClientCertificate | None:
    """Returns the certificate of the client of a connection; None: it sent none, or does not speak TLS."""
    tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    if tls is None:
        return None
    shown, encoded = tls.getpeercert(), tls.getpeercert(binary_form=True)
    if not shown or encoded is None:
        return None
    names = cast(tuple[tuple[str, str], ...], shown.get("subjectAltName", ()))
    until = datetime.fromtimestamp(ssl.cert_time_to_seconds(cast(str, shown["notAfter"])), UTC)
    return ClientCertificate(names, hashlib.sha256(encoded).hexdigest(), until)
