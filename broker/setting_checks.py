"""What is asked of the settings that are texts.  Each raises ValueError; its message, if any, has the detail."""

import re
from ipaddress import IPv6Address
from urllib.parse import urlsplit

from broker.workers.push.address_policy import parse_networks
from broker.workers.push.tls_context import make_tls_context

_DATABASE_SCHEMES = ("postgresql", "postgres")
_PASSWORD_IN_WORDS = re.compile(r"(?i)\b(\w*password\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&]+)")


def check_host(host: str) -> None:
    if any(character.isspace() or character in "/?#@" for character in host):
        raise ValueError
    if ":" in host:
        try:
            IPv6Address(host)
        except ValueError:
            raise ValueError("the port is a setting of its own") from None


def check_database_url(url: str) -> None:
    scheme, colon, _ = url.partition("://")
    if colon and scheme not in _DATABASE_SCHEMES:
        raise ValueError
    if not colon and "=" not in url:  # the other spelling of libpq: host=… dbname=…
        raise ValueError


def check_issuer(issuer: str) -> None:
    parts = urlsplit(issuer)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
        raise ValueError


def check_networks(networks: str) -> None:
    parse_networks(networks)


def check_ca_file(path: str) -> None:
    try:
        make_tls_context(path)
    except OSError as error:  # also what OpenSSL has against it
        raise ValueError(error.strerror or str(error)) from None


def without_password(url: str) -> str:
    """A database URL to be shown to people.  Of one that is malformed rather too much is hidden than too little."""
    head, at, rest = url.rpartition("@")
    scheme, slashes, names = head.rpartition("://")
    user, colon, _ = names.partition(":")
    if at and colon:
        url = f"{scheme}{slashes}{user}:***@{rest}"
    return _PASSWORD_IN_WORDS.sub(r"\1***", url)
