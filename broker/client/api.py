"""Calls a server of the Pub/Sub API over HTTP with JSON, for commands: this broker or any other server."""

import socket
import ssl
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

import httpx

from broker.client.credentials import Credentials
from broker.client.exit_codes import MISSING, NOT_REACHED, exit_code
from broker.client.hints import hint
from broker.client.json_text import NotJson, parse_json
from broker.client.stop import Misuse, Stop
from broker.client.unreached import why_unreached
from broker.model.certificate_validity import Validity
from broker.model.errors import os_reason

Json = dict[str, Any]

DEFAULT_URL = "http://127.0.0.1:8085"
_OF_PROXIES = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    429: "RESOURCE_EXHAUSTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "UNAVAILABLE",
}
_TIMEOUT_SECONDS = 60.0
_WAIT_SECONDS = 120.0  # for a pull that waits for messages


class Refused(Stop):
    """The server has answered with an error; `status` is its canonical code, `reason` what it says."""

    def __init__(self, status: str, reason: str, *, what_next: str = "") -> None:
        said = f"{status}: {reason.rstrip('.')}" if reason else status
        super().__init__(f"{said}{what_next}")
        self.status = status
        self.reason = reason
        self.exit_code = exit_code(status)


class NotReached(Stop):
    """A call had no answer; `seen` is what was seen, `remedy` what to do ("": nothing is known)."""

    exit_code = NOT_REACHED

    def __init__(self, seen: str, remedy: str = "") -> None:
        super().__init__("; ".join(filter(None, (seen, remedy))))
        self.seen = seen
        self.remedy = remedy


class NotThere(Stop):
    """A named resource is not among those that the server has listed."""

    exit_code = MISSING


class NotKnown(Stop):
    """The server has no such call: it is another server of the API, or a broker without this call."""


class Event(NamedTuple):
    """An event of a stream of Server-Sent Events."""

    name: str
    id: str
    data: Json


class Api:
    """Closed after use.  Each call raises Refused, NotKnown or NotReached where it fails."""

    def __init__(
        self, url: str, credentials: Credentials = None, ca_file: str | None = None, unix_socket: str | None = None
    ) -> None:
        """`unix_socket`: the path of a Unix socket that the server listens on.  Raises Misuse."""
        if not url.startswith(("http://", "https://")):
            raise Misuse(f"--url must be a URL such as {DEFAULT_URL}, not {url[:200]!r}")
        self.url = url.rstrip("/")
        self.credentials = credentials
        self.ca_file = ca_file
        verify = tls(self.url, ca_file)
        transport = httpx.HTTPTransport(uds=unix_socket, verify=verify) if unix_socket else None
        self._client = httpx.Client(timeout=_TIMEOUT_SECONDS, verify=verify, transport=transport)

    def __enter__(self) -> "Api":
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self._client.close()

    def call(
        self, method: str, path: str, body: Any = None, params: Mapping[str, Any] | None = None, **options: Any
    ) -> Json:
        """The answer of `/v1/{path}`."""
        target = f"/v1/{_quoted(path)}"
        response = self._send(method, target, json=body, params=_without_none(params), **options)
        answer = _json_of(response)
        if response.is_success and isinstance(answer, dict):
            return answer
        raise self._refusal(method, target, response.status_code, answer)

    def pull(self, subscription: str, most: int, *, wait: bool) -> list[Json]:
        """Pulls up to `most` messages.  With `wait`, waits until there are any."""
        body: Json = {"maxMessages": most} | ({} if wait else {"returnImmediately": True})
        answer = self.call("POST", f"{subscription}:pull", body, timeout=_WAIT_SECONDS)
        received: list[Json] = answer.get("receivedMessages", [])
        return received

    def all_of(
        self, path: str, field: str, params: Mapping[str, Any] | None = None, most: int | None = None
    ) -> list[Json]:
        """Returns the elements of a list from all of its pages, or the first `most`."""
        found: list[Json] = []
        token = ""
        while True:
            asked = dict(params or {}) | ({"pageToken": token} if token else {})
            if most is not None:
                asked["pageSize"] = min(most - len(found), 1000)
            answer = self.call("GET", path, params=asked)
            found += answer.get(field, [])
            token = answer.get("nextPageToken", "")
            if not token or (most is not None and len(found) >= most):
                return found[:most]

    def events(self, path: str, params: Mapping[str, Any] | None = None) -> Iterator[Event]:
        """Yields the events of a stream, until it ends."""
        target = f"/v1/{_quoted(path)}"
        options: Json = {"params": _without_none(params), "headers": self._headers(), "timeout": None}
        try:
            with self._client.stream("GET", f"{self.url}{target}", **options) as response:
                if not response.is_success:
                    response.read()
                    raise self._refusal("GET", target, response.status_code, _json_of(response))
                yield from _events(response.iter_lines())
        except httpx.HTTPError as error:
            raise self._not_reached(error) from error

    def lines(self, path: str, body: Json) -> Iterator[bytes]:
        """Yields the lines of an answer of lines of JSON, with their line ends.

        Raises the error that the last line may have in place of a result.
        """
        begun = b""
        for piece in self.pieces(path, body):
            *whole, begun = (begun + piece).split(b"\n")
            for line in whole:
                if line.startswith(b'{"error":'):
                    raise self._refusal("POST", f"/v1/{_quoted(path)}", 500, _parsed(line))
                yield line + b"\n"

    def pieces(self, path: str, body: Json) -> Iterator[bytes]:
        """Yields the pieces of a long answer, as they come.  Raises NotReached if the answer breaks off."""
        target = f"/v1/{_quoted(path)}"
        options: Json = {"json": body, "headers": self._headers(), "timeout": None}
        begun = False
        try:
            with self._client.stream("POST", f"{self.url}{target}", **options) as response:
                if not response.is_success:
                    response.read()
                    raise self._refusal("POST", target, response.status_code, _json_of(response))
                for piece in response.iter_bytes():
                    begun = True
                    yield piece
        except httpx.HTTPError as error:
            if begun:
                raise NotReached(
                    f"{self.url} has broken off its answer: what is there is not all; try again"
                ) from error
            raise self._not_reached(error) from error

    def data(self, path: str, range_: str | None) -> bytes:
        """The bytes that `/v1/{path}` answers with, or a range of them (RFC 9110)."""
        target = f"/v1/{_quoted(path)}"
        headers = self._headers() | ({"range": f"bytes={range_}"} if range_ else {})
        try:
            response = self._client.get(f"{self.url}{target}", headers=headers)
        except httpx.HTTPError as error:
            raise self._not_reached(error) from error
        if response.status_code == 416:
            size = response.headers.get("content-range", "").rpartition("/")[2]
            raise Refused("OUT_OF_RANGE", f"the data has {size} bytes, and none of them is in the range {range_}")
        if not response.is_success:
            raise self._refusal("GET", target, response.status_code, _json_of(response))
        return response.content

    def get(self, path: str) -> httpx.Response:
        """The answer of a path that is no call of the API.  Raises NotReached."""
        return self._send("GET", path)

    def certificate_validity(self) -> Validity | None:
        """Returns the validity of the server's certificate; None without TLS. Raises NotReached."""
        url = urlsplit(self.url)
        if url.scheme != "https" or not url.hostname:
            return None
        context = tls(self.url, self.ca_file)
        try:
            address = (url.hostname, url.port or 443)
            with (
                socket.create_connection(address, _TIMEOUT_SECONDS) as plain,
                context.wrap_socket(plain, server_hostname=url.hostname) as encrypted,
            ):
                shown = encrypted.getpeercert() or {}
        except OSError as error:
            raise self._not_reached(error) from error
        times = [ssl.cert_time_to_seconds(str(shown[name])) for name in ("notBefore", "notAfter")]
        begins, ends = (datetime.fromtimestamp(time, UTC) for time in times)
        return Validity(begins, ends)

    def send_form(self, path: str, form: Mapping[str, str]) -> Json:
        """Posts a form and returns the answer of OAuth (RFC 6749).

        Only the form has credentials.  Raises Refused.
        """
        try:
            response = self._client.post(f"{self.url}{path}", data=form)
        except httpx.HTTPError as error:
            raise self._not_reached(error) from error
        answer = _json_of(response)
        if response.is_success and isinstance(answer, dict):
            return answer
        error_ = answer.get("error") if isinstance(answer, dict) else None
        if isinstance(error_, str):
            raise Refused(error_, str(answer.get("error_description", "")))
        raise self._refusal("POST", path, response.status_code, answer)

    def _headers(self) -> dict[str, str]:
        return self.credentials.headers() if self.credentials else {}

    def _send(self, method: str, target: str, **options: Any) -> httpx.Response:
        try:
            return self._client.request(method, f"{self.url}{target}", headers=self._headers(), **options)
        except httpx.HTTPError as error:
            raise self._not_reached(error) from error
        except httpx.InvalidURL as error:
            raise Misuse(f"--url must be a URL such as {DEFAULT_URL}: {error}") from None

    def _not_reached(self, error: Exception) -> NotReached:
        return NotReached(f"{self.url} {(why := why_unreached(error, ca_file=self.ca_file)).seen}", why.remedy)

    def _refusal(self, method: str, target: str, code: int, answer: Any) -> Stop:
        error = answer.get("error") if isinstance(answer, dict) else None
        if isinstance(error, dict):
            status = str(error.get("status") or code)
            reason = str(error.get("message", ""))
            what_next = hint(status, unquote(target), reason, asked=self.credentials is not None)
            return Refused(status, reason, what_next=what_next)
        if code in (404, 405, 501):
            return NotKnown(
                f"{self.url} does not know {method} {unquote(target)}: it is not this broker, or an older one; "
                "`broker doctor` says which"
            )
        if code in _OF_PROXIES:  # whatever answers for the server says nothing about what was asked for
            return Refused(_OF_PROXIES[code], f"{self.url} answers {code}, itself or by a proxy before it")
        return Refused(str(code), f"{self.url} does not answer as a server of this API does")


def _quoted(path: str) -> str:
    return quote(path, safe="/:@")


def _without_none(params: Mapping[str, Any] | None) -> Json | None:
    return {name: value for name, value in params.items() if value not in (None, "")} if params else None


def _json_of(response: httpx.Response) -> Any:
    return _parsed(response.content) if response.content else {}


def _parsed(text: str | bytes) -> Any:
    """None for what is not JSON."""
    try:
        return parse_json(text)
    except NotJson:
        return None


def _events(lines: Iterator[str]) -> Iterator[Event]:
    """https://html.spec.whatwg.org/multipage/server-sent-events.html: fields, and a blank line after each event."""
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
        elif "data" in fields:
            yield Event(fields.get("event", "message"), fields.get("id", ""), _parsed(fields["data"]) or {})
            fields = {}


def tls(url: str, ca_file: str | None) -> ssl.SSLContext:
    """Returns the TLS context that verifies the server.  Raises Misuse."""
    if not url.startswith("https://"):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # reads nothing, and is not used
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise Misuse(f"--ca-file {ca_file}: {os_reason(error)}") from None
