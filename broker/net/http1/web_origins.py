"""Host names of a broker, and origins of web pages, in the formats of settings and browsers.

https://www.rfc-editor.org/rfc/rfc6454 (origins); https://www.rfc-editor.org/rfc/rfc6762 (.local) and
https://www.rfc-editor.org/rfc/rfc6761 (.localhost); .internal is reserved by ICANN; .svc is used by Kubernetes.
"""

import re
from collections.abc import Collection
from ipaddress import ip_address

from broker.model.audiences import split_list

_LABEL = "[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST = re.compile(rf"(\*\.)?{_LABEL}(\.{_LABEL})*")
_ORIGIN = re.compile(rf"https?://({_LABEL}(\.{_LABEL})*|\[[0-9a-f:.]+\])(:[0-9]{{1,5}})?")
_PRIVATE = (".localhost", ".internal", ".local", ".svc")  # no public name ends with these
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


def check_hosts(text: str) -> None:
    """Raises ValueError unless all are names, or `*.` and a name."""
    for host in split_list(text):
        if not _HOST.fullmatch(host.lower()):
            raise ValueError(host)


def check_origins(text: str) -> None:
    """Raises ValueError unless all are origins."""
    for origin in split_list(text):
        if not _ORIGIN.fullmatch(origin.lower()):
            raise ValueError(origin)


def name_of(authority: str) -> str:
    """The host of `host:port`, in small letters, without the port and the dot at its end."""
    host = authority.lower()
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0].removesuffix(".")


def is_private_name(name: str) -> bool:
    """Whether nobody can own the name in the public DNS, and point it at somebody else's machine."""
    if "." not in name and not name.startswith("["):
        return True
    return name.endswith(_PRIVATE) or _is_address(name)


def is_among(name: str, hosts: Collection[str]) -> bool:
    """Whether a name is one of `hosts`; `*.example.com` is all names below example.com, at any depth."""
    return name in hosts or any(host.startswith("*.") and name.endswith(host[1:]) for host in hosts)


def is_same_origin(origin: str, authority: str) -> bool:
    """Whether a page of this origin was loaded from the host and port that it asks.

    The scheme is not compared: behind a proxy that ends TLS the broker does not see it.
    """
    scheme, separator, asked_by = origin.lower().partition("://")
    default = _DEFAULT_PORTS.get(scheme, "")
    return bool(separator and default) and asked_by.removesuffix(default) == authority.lower().removesuffix(default)


def _is_address(name: str) -> bool:
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
