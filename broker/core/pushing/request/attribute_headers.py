"""Attributes as headers of an unwrapped push (writeMetadata): those that are valid and harmless (A8).

The publisher chooses the name and value of an attribute, but the request is the broker's.  So no attribute may end
a header, add a second one, change how the request is framed or routed, or be taken for a header of the broker
itself, of a proxy, or of the platform in front of a receiver.  docs/operations.md has the list for operators.

Names are compared as the most lenient receiver reads them: CGI and WSGI map `X-Real-IP` and `x_real_ip` to the same
variable (RFC 3875, section 4.1.18), and some servers replace every other character by `_` as well.
"""

import re
from collections.abc import Mapping

_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # a token: RFC 9110, section 5.6.2
_VALUE = re.compile(r"[!-~](?:[ \t!-~]*[!-~])?")  # visible ASCII, blanks within: RFC 9110, section 5.5
_SIGN = re.compile(r"[^0-9a-z]")

DROPPED = frozenset(
    (
        # how the request is framed, and what concerns the connection (RFC 9110, section 7.6.1)
        "host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade",
        "expect", "http2-settings", "max-forwards", "alt-used",
        # becomes HTTP_PROXY, through which programs then send their own requests (https://httpoxy.org)
        "proxy",
        # headers of the broker
        "authorization", "from", "user-agent", "accept", "accept-encoding",
        # credentials
        "cookie", "cookie2", "remote-user", "x-remote-user", "x-serverless-authorization",
        # headers of proxies about the origin of a request
        "forwarded", "via", "x-real-ip", "x-client-ip", "client-ip", "true-client-ip", "x-cluster-client-ip",
        "x-originating-ip", "x-remote-ip", "x-remote-addr", "remote-addr", "fastly-client-ip", "x-forwarded",
        # headers by which frameworks override the method and path
        "x-http-method", "x-http-method-override", "x-method-override", "x-host", "x-middleware-subrequest",
        # headers of Google's platform, which it removes from other requests
        "x-cloudscheduler", "x-apigateway-api-userinfo", "x-endpoint-api-userinfo",
    )
)  # fmt: skip
DROPPED_PREFIXES = (
    "x-goog-", "x-google-", "x-appengine-", "x-cloudtasks-", "x-cloudscheduler-",
    "webhook-", "proxy-", "x-forwarded-", "x-original-", "x-rewrite-", "sec-",
    "x-auth-request-", "x-authenticated-", "x-ms-client-principal", "x-amzn-", "x-envoy-", "cf-",
    "ssl-client-", "x-ssl-client-", "x-client-cert",
)  # fmt: skip


def attribute_headers(attributes: Mapping[str, str]) -> dict[str, str]:
    """A header for each attribute that can be one; of names that differ in case only, the first."""
    headers: dict[str, str] = {}
    seen = set()
    for name, value in attributes.items():
        lower = name.lower()
        if lower in seen or _is_dropped(lower):
            continue
        if _NAME.fullmatch(name) and is_header_value(value):
            seen.add(lower)
            headers[name] = value
    return headers


def _is_dropped(lower: str) -> bool:
    read = _SIGN.sub("-", lower)
    return read in DROPPED or read.startswith(DROPPED_PREFIXES)


def is_header_value(text: str) -> bool:
    """Whether a text can be a header's value as it is; also the empty one."""
    return not text or _VALUE.fullmatch(text) is not None
