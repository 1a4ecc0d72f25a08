"""The credentials in an HTTP request."""

from collections.abc import Iterable
from urllib.parse import parse_qsl

from broker.access.credentials.authenticator import Shown
from broker.model.client_certificate import ClientCertificate
from broker.net.http1.head import Head


def authorization_of(head: Head) -> bytes:
    """Returns the value of `Authorization`, if the request has it once.  Most callers send no other credential."""
    found = b""
    for name, value in head.headers:
        if name == b"authorization":
            if found:
                return b""
            found = value
    return found


def shown_by(head: Head, certificate: ClientCertificate | None) -> Shown:
    """Returns the credentials of a request of the API."""
    return shown_in(head.headers, head.query, certificate)


def shown_in(headers: Iterable[tuple[bytes, bytes]], query: bytes, certificate: ClientCertificate | None) -> Shown:
    """`Authorization`, `X-Goog-Api-Key`, or the query's `key` or `$key`: Google's APIs take all of them.

    Headers that are repeated are joined, as HTTP says, and then no credential is like them.
    """
    authorization = api_key = b""
    for name, value in headers:
        if name == b"authorization":
            authorization = b"%b, %b" % (authorization, value) if authorization else value
        elif name == b"x-goog-api-key":
            api_key = b"%b, %b" % (api_key, value) if api_key else value
    if not (authorization or api_key) and b"key=" in query:
        pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, errors="replace")
        api_key = next((value.encode() for name, value in pairs if name in ("key", "$key")), b"")
    return Shown(authorization, api_key, certificate)
