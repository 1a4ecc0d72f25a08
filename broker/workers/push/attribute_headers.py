"""Attributes as headers of an unwrapped push (writeMetadata): those that are legal and harmless (A8).

An attribute's name and value are a publisher's; the request is the broker's.  So none may end a header, add a
second one, change how the request is framed or routed, or pass for what the broker itself says.
"""

import re
from collections.abc import Mapping

_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # a token: RFC 9110, section 5.6.2
_VALUE = re.compile(r"[!-~](?:[ \t!-~]*[!-~])?")  # visible ASCII, blanks within: RFC 9110, section 5.5

_RESERVED = frozenset(
    (
        # how the request is framed, and what concerns the connection
        "host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade",
        "expect", "http2-settings",
        # what the broker says
        "authorization", "from", "user-agent", "accept",
        # what proxies say
        "forwarded", "via", "x-real-ip",
    )
)  # fmt: skip
_RESERVED_PREFIXES = ("x-goog-pubsub-", "webhook-", "proxy-", "x-forwarded-")


def attribute_headers(attributes: Mapping[str, str]) -> dict[str, str]:
    """A header for each attribute that can be one; of names that differ in case only, the first."""
    headers: dict[str, str] = {}
    seen = set()
    for name, value in attributes.items():
        lower = name.lower()
        if lower in seen or lower in _RESERVED or lower.startswith(_RESERVED_PREFIXES):
            continue
        if _NAME.fullmatch(name) and is_header_value(value):
            seen.add(lower)
            headers[name] = value
    return headers


def is_header_value(text: str) -> bool:
    """Whether a text can be a header's value as it is; also the empty one."""
    return not text or _VALUE.fullmatch(text) is not None
