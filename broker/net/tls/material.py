"""The TLS material of a port: certificate, private key, certificate authorities of clients; and errors in it.

It is kept in memory as bytes, so that all processes of a broker have the same material, even one that is started
while the files on the disk are only partly replaced.
"""

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NoReturn

from broker.model.certificate_validity import Validity

# In the order of preference.  A client that offers both gets HTTP/1.1, in which REST is fastest.  gRPC clients
# offer only HTTP/2, and so do some proxies and REST clients (docs/decisions/0074-system-parameters.md).
PROTOCOLS = ("http/1.1", "h2")
# For TLS 1.2; all ciphers of 1.3 are secure.  Forward secrecy, and authenticated encryption.
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"


class UnusableTls(ValueError):
    """`what` ("certificate", "key" or "client_ca") will not do; the message says why, and has nothing of a key."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(why)
        self.what = what


@dataclass(frozen=True, slots=True)
class TlsMaterial:
    """The certificates and the key of a port, in PEM.

    `certificate`: the server's, then those between it and its authority.  `client_ca`: the authorities that have to
    sign clients' certificates (empty: none is requested); `client_required`: a client without one is refused.
    `validity`: of the server's certificate (None: not read), which the parent reads so that its processes need not.
    """

    certificate: bytes
    key: bytes = field(repr=False)
    client_ca: bytes = b""
    client_required: bool = True
    validity: Validity | None = None


def make_context(material: TlsMaterial) -> ssl.SSLContext:
    """Returns a TLS context for the server's side of connections.  Raises UnusableTls."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_ciphers(_CIPHERS)
    context.set_alpn_protocols(PROTOCOLS)
    _load_chain(context, material)
    if material.client_ca:
        check_certificates(material.client_ca, "client_ca")
        context.load_verify_locations(cadata=material.client_ca.decode("ascii", "replace"))
        context.verify_mode = ssl.CERT_REQUIRED if material.client_required else ssl.CERT_OPTIONAL
        # A resumed session would not be verified again.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
    return context


def check_certificates(pem: bytes, what: str = "certificate") -> None:
    """Raises UnusableTls unless there is a certificate in it, and each can be read."""
    if b"-----BEGIN CERTIFICATE-----" not in pem:
        raise UnusableTls(what, "there is no certificate (PEM) in it")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=pem.decode("ascii", "replace"))
    except ssl.SSLError as error:
        raise UnusableTls(what, f"a certificate in it cannot be read ({_reason(error)})") from None


def check_key(pem: bytes) -> None:
    """Raises UnusableTls unless it looks like a private key without a passphrase."""
    if b"PRIVATE KEY-----" not in pem:
        raise UnusableTls("key", "there is no private key (PEM) in it")
    if b"ENCRYPTED" in pem:  # PKCS #8 has it in its first line, older formats in a header
        raise _encrypted()


def _encrypted() -> UnusableTls:
    return UnusableTls("key", "it is encrypted; write it without a passphrase (`openssl pkey -in FILE -out NEW`)")


def _load_chain(context: ssl.SSLContext, material: TlsMaterial) -> None:
    check_certificates(material.certificate)
    check_key(material.key)
    with _as_file(material.certificate) as certificate, _as_file(material.key) as key:
        try:
            context.load_cert_chain(certificate, key, password=_no_passphrase)
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                raise UnusableTls("key", "it is not the key of the certificate") from None
            what = "certificate" if error.reason and "EE_KEY" in error.reason else "key"
            raise UnusableTls(what, f"it cannot be used ({_reason(error)})") from None


def _no_passphrase() -> NoReturn:
    raise _encrypted()


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or "it is damaged").lower().replace("_", " ")


@contextmanager
def _as_file(pem: bytes) -> Iterator[str]:
    """A path that has it within the block, for OpenSSL: in memory where that is possible."""
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        with open(os.memfd_create("tls"), "wb") as file:
            file.write(pem)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile() as file:  # only its owner may read it
            file.write(pem)
            file.flush()
            yield file.name


class ServerTls:
    """The TLS context for new connections of a process; open connections keep the one that they began with."""

    def __init__(self, material: TlsMaterial) -> None:
        """Raises UnusableTls."""
        self.context = make_context(material)
        self.validity = material.validity

    def renew(self, material: TlsMaterial) -> None:
        """Raises UnusableTls, and leaves it as it is."""
        self.context = make_context(material)
        self.validity = material.validity
