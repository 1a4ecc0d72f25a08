"""Decides which requests from web pages are served (E1).

Any page can make its visitor's browser send requests to every host that the visitor can reach, such as a broker on
the same machine.  Two rules block such pages, whether authentication is required or not:

* A page of another origin is refused.  The browser states the origin (`Sec-Fetch-Site`, else `Origin`), and pages
  cannot forge it.  Origins in --cors-origins are allowed, and so is opening a response as a page of its own.
* A host name (`Host`) that could be registered in the public DNS must be a configured name of the broker.
  Otherwise the owner of a name could point it at the broker, and a page of the owner would have the same origin
  (DNS rebinding).  Over TLS the certificate proves the name.

Programs send neither `Origin` nor `Sec-Fetch-Site`, and are not affected.  The decision is cached with the head of
a request, so it costs nothing for a client that sends the same head again (KnownHeads).

https://fetch.spec.whatwg.org/#cors-protocol, https://www.w3.org/TR/fetch-metadata/
"""

import re
from collections.abc import Collection

from broker.net.http1.exchange import Exchange
from broker.net.http1.head import SERVED, Head, Verdict
from broker.net.http1.responses import error_answer
from broker.net.http1.web_origins import is_among, is_private_name, is_same_origin, name_of
from broker.observability.state_changes import StateChanges

_LONGEST = 200  # characters of a host or an origin that are shown
_FIELD_NAMES = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z, -]{0,1000}")
_EXPOSED = b"retry-after, www-authenticate, x-request-id"
_METHODS = b"GET, POST, PUT, PATCH, DELETE"
_PREFLIGHT_SECONDS = 600  # for which a browser may cache the answer
_SITES_OF_OURS = (b"same-origin", b"none")  # none: the user has typed the address


class WebPages:
    """The names and origins that the operator has allowed, as a process knows them."""

    def __init__(self, *, hosts: Collection[str] = (), origins: Collection[str] = (), states: StateChanges) -> None:
        """`hosts`: names that the broker goes by, `*.example.com` for all below one; `origins`: of pages that may
        call it.
        """
        self._hosts = frozenset(map(str.lower, hosts))
        self._origins = frozenset(map(str.lower, origins))
        self._states = states

    def judge(self, head: Head) -> Verdict:
        fields = dict(head.headers)
        host, origin = _text(fields.get(b"host", b"")), _text(fields.get(b"origin", b""))
        foreign = "" if self._is_ours(name_of(host)) else host
        if _is_of_this_origin(fields, origin, host) or _is_opened(head, fields):
            return Verdict(host=foreign) if foreign else SERVED
        if origin.lower() not in self._origins or [name for name, _ in head.headers].count(b"origin") != 1:
            return Verdict(host=foreign, origin=origin or "a page that does not say whose it is")
        headers = b"access-control-allow-origin: %b\r\nvary: Origin\r\n" % fields[b"origin"]
        asked = fields.get(b"access-control-request-headers", b"")
        if head.method != "OPTIONS" or b"access-control-request-method" not in fields:
            return Verdict(foreign, headers=headers + b"access-control-expose-headers: %b\r\n" % _EXPOSED)
        headers += b"access-control-allow-methods: %b\r\naccess-control-max-age: %d\r\n" % (
            _METHODS,
            _PREFLIGHT_SECONDS,
        )
        if asked and _FIELD_NAMES.fullmatch(asked):
            headers += b"access-control-allow-headers: %b\r\n" % asked
        if fields.get(b"access-control-request-private-network") == b"true":
            headers += b"access-control-allow-private-network: true\r\n"
        return Verdict(foreign, headers=headers, preflight=True)

    def serves(self, verdict: Verdict, *, secure: bool) -> bool:
        """`secure`: the connection speaks TLS.  What is not served `answer` answers."""
        return not (verdict.origin or verdict.preflight or (verdict.host and not secure))

    async def answer(self, exchange: Exchange, verdict: Verdict) -> None:
        """Answers a browser that asks whether it may call, or refuses a request."""
        if verdict.preflight and not verdict.host:
            exchange.respond(204, b"", b"")  # the exchange already has the verdict's headers
        elif verdict.origin:
            self._refuse(
                exchange,
                "pages of another origin",
                "requests of web pages of another origin are refused",
                verdict.origin,
                "Web pages of other origins may not call the broker. To allow one, start the broker with "
                "--cors-origins ORIGIN (BROKER_CORS_ORIGINS)",
                option="cors-origins",
            )
        else:
            self._refuse(
                exchange,
                "hosts that are not ours",
                "requests to a name that is not the broker's are refused",
                verdict.host,
                "The broker does not go by that name. To add it, start the broker with --allowed-hosts NAME "
                "(BROKER_ALLOWED_HOSTS)",
                option="allowed-hosts",
            )

    def _refuse(self, exchange: Exchange, kind: str, what: str, who: str, advice: str, *, option: str) -> None:
        shown = who[:_LONGEST]
        self._states.happens(kind, "", what, f"{shown} (--{option} allows it)")
        exchange.respond(*error_answer(403, f"{advice}; the request names {shown}."))

    def _is_ours(self, name: str) -> bool:
        return is_private_name(name) or is_among(name, self._hosts)


def _is_of_this_origin(fields: dict[bytes, bytes], origin: str, host: str) -> bool:
    """Whether a program sends it, or a page that came from where it asks."""
    site = fields.get(b"sec-fetch-site")
    if site is not None:
        return site in _SITES_OF_OURS
    return not origin or is_same_origin(origin, host)


def _is_opened(head: Head, fields: dict[bytes, bytes]) -> bool:
    """Whether somebody follows a link: the answer is a page of its own, and no page reads it."""
    opened = fields.get(b"sec-fetch-mode") == b"navigate" and fields.get(b"sec-fetch-dest") == b"document"
    return opened and head.method in ("GET", "HEAD")


def _text(value: bytes) -> str:
    return value.decode("latin-1")
