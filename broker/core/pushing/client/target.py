"""The parts of a URL that a request to it needs."""

import base64
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

_PORTS = {"http": 80, "https": 443}
_KEPT = "%/:=&?~#+!$,;'@()*[]|"  # of a path or query, as it was given


class Origin(NamedTuple):
    """The origin of an endpoint.  Connections to one origin are interchangeable."""

    is_tls: bool
    host: str
    port: int


class Target(NamedTuple):
    """`start`: the request line and the headers that follow from the URL, as they are sent."""

    origin: Origin
    start: bytes


def origin_of(url: str) -> Origin:
    """Returns the origin of a URL; an invalid URL has an origin of its own."""
    try:
        return parse_target(url).origin
    except ValueError:
        return Origin(False, url, 0)


def shown_origin(url: str) -> str:
    """A URL as it may be shown to anybody: neither user, path nor query."""
    try:
        origin = parse_target(url).origin
    except ValueError:
        return "its endpoint"
    host = f"[{origin.host}]" if ":" in origin.host else origin.host
    scheme = "https" if origin.is_tls else "http"
    return f"{scheme}://{host}" if origin.port == _PORTS[scheme] else f"{scheme}://{host}:{origin.port}"


@lru_cache(maxsize=20_000)  # some 10 MB
def parse_target(url: str) -> Target:
    """Raises ValueError for what is no http(s) URL of a host.  The fragment is dropped, the query kept.

    A user and password become Basic authorization.
    """
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError("the endpoint is not an http or https URL")
    host = parts.hostname
    name = f"[{host}]" if ":" in host else host.encode("idna").decode("ascii")
    port = parts.port or _PORTS[parts.scheme]
    path = quote(parts.path or "/", safe=_KEPT) + (f"?{quote(parts.query, safe=_KEPT)}" if parts.query else "")
    shown = name if port == _PORTS[parts.scheme] else f"{name}:{port}"
    start = f"POST {path} HTTP/1.1\r\nHost: {shown}\r\n"
    if parts.username is not None:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        start += f"Authorization: Basic {base64.b64encode(login).decode()}\r\n"
    return Target(Origin(parts.scheme == "https", name.strip("[]"), port), start.encode("ascii"))
