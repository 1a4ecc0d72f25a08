"""Sends one POST to an endpoint, and returns its outcome.

This is a client of our own because a general one needs five times the processor time (docs/decisions/0009), and
because most of its purpose is what it must *not* do: follow redirects, keep cookies, use a proxy from the
environment, decompress, or read answers without a limit.
"""

import asyncio
from collections import defaultdict, deque
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache

from broker.core.pushing.client.address_policy import ALLOW_ALL, AddressPolicy
from broker.core.pushing.client.connection import MAX_BODY, Connection, ConnectionLost, describe
from broker.core.pushing.client.resolver import Resolver
from broker.core.pushing.client.target import Origin, parse_target
from broker.core.pushing.client.tls_context import make_tls_context
from broker.core.pushing.health.endpoint_health import MAX_RETRY_AFTER
from broker.core.pushing.request.envelope import PushRequest

__all__ = ["MAX_BODY", "MAX_RETRY_AFTER", "SUCCESS", "Answer", "Denied", "Outcome", "PushClient", "Unreachable"]

SUCCESS = frozenset({102, 200, 201, 202, 204})  # https://cloud.google.com/pubsub/docs/push#receive_push

_CONNECT_SECONDS = 10.0  # for the name, the connection and TLS in all
_ADDRESS_SECONDS = 3.0  # for one address while there are others to try
_STALE_SECONDS = 1.0  # a kept connection that ends later than this had not been closed before
_BODY_SECONDS = 1.0  # for a body that is not needed: the status decides
_IDLE_SECONDS = 15.0  # shorter than most servers keep connections
_UNREADABLE_DATES = (TypeError, ValueError, OverflowError)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of an endpoint.  `body`: at most MAX_BODY bytes of it, as they were sent.

    `retry_after`: the seconds in which it wants no requests (0 to 3,600); None if it has no valid Retry-After.
    """

    status: int
    body: bytes
    retry_after: float | None


@dataclass(frozen=True, slots=True)
class Unreachable:
    """A request had no answer.  `reason` is one line for people.  `connected`: there was a connection."""

    reason: str
    connected: bool = True


@dataclass(frozen=True, slots=True)
class Denied:
    """A request was not sent, because the broker may not.  `reason` is one line for people.

    It leaves out the address of a name within the broker's network, which not every caller may know.
    """

    reason: str


Outcome = Answer | Unreachable | Denied


class _AddressDenied(OSError):
    """The policy denies all addresses of an endpoint."""


class PushClient:
    """Keeps connections alive, any number for each origin.  One for a process; of one event loop."""

    def __init__(self, *, policy: AddressPolicy = ALLOW_ALL, ca_file: str = "") -> None:
        """Raises OSError if `ca_file` cannot be read."""
        self._policy = policy
        self._tls = make_tls_context(ca_file)
        self._resolver = Resolver()
        self._idle: defaultdict[Origin, deque[Connection]] = defaultdict(deque)  # the one used last at the end
        self._connections: set[Connection] = set()  # in use
        self._sweeping: asyncio.TimerHandle | None = None
        self._closed = False

    async def post(self, request: PushRequest) -> Outcome:
        """Send a request.  Takes as long as the endpoint does; cancelling it closes the connection.

        Never raises for what the other side does.  A connection that the endpoint closed while it was idle is no
        failure: the request is sent once more, on a new one.  One that ends later was closed by an endpoint that
        had the request.
        """
        try:
            target = parse_target(request.url)
            data = _serialise(target.start, request)
        except ValueError as error:
            return Unreachable(describe(error))
        origin = target.origin
        connection = self._reuse(origin)
        if connection is not None:
            loop = asyncio.get_running_loop()
            sent_at = loop.time()
            try:
                return await self._exchange(origin, connection, request, data)
            except ConnectionLost as lost:
                if not lost.untouched or loop.time() - sent_at > _STALE_SECONDS:
                    return Unreachable(describe(lost))
        try:
            connection = await self._connect(origin)
        except _AddressDenied as denied:
            return Denied(str(denied))
        except OSError as error:
            return Unreachable(describe(error), connected=False)
        try:
            return await self._exchange(origin, connection, request, data)
        except (OSError, ConnectionLost) as error:
            return Unreachable(describe(error))

    async def denial(self, url: str) -> str | None:
        """Why the policy would not let a request to this URL out now; None: it would, to one address or another.

        Raises OSError if that cannot be known: the name is not resolved.
        """
        if self._policy.allow_private:
            return None
        try:
            origin = parse_target(url).origin
        except ValueError:
            return None
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                self._allowed(origin, await self._resolver.addresses(origin.host))
        except _AddressDenied as denied:
            return str(denied)
        except TimeoutError:
            raise OSError(f"the name {origin.host} is not resolved in time") from None
        return None

    async def close(self) -> None:
        """Close all connections; requests under way become Unreachable."""
        self._closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        for connection in [*self._connections, *(c for idle in self._idle.values() for c in idle)]:
            connection.abort()
        self._idle.clear()
        await self._resolver.close()
        await asyncio.sleep(0)  # the transports close

    async def _exchange(self, origin: Origin, connection: Connection, request: PushRequest, data: bytes) -> Answer:
        """Raises ConnectionLost if the connection ended before an answer's status."""
        self._connections.add(connection)
        try:
            await connection.send(data)
            if not connection.complete:
                seconds = None if request.want_body and connection.status in SUCCESS else _BODY_SECONDS
                await _read_body(connection, seconds)
            connection.finish()
        except asyncio.CancelledError:
            connection.abort()
            raise
        finally:
            self._connections.discard(connection)
        if connection.reusable:
            self._keep(origin, connection)
        retry_after = _parse_retry_after(connection) if connection.retry_after else None
        return Answer(connection.status, connection.body, retry_after)

    # Connections that wait to be used again.

    def _reuse(self, origin: Origin) -> Connection | None:
        idle = self._idle.get(origin)
        while idle:
            connection = idle.pop()
            if connection.reusable:
                return connection
        return None

    def _keep(self, origin: Origin, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle[origin].append(connection)
        if self._sweeping is None:
            self._sweeping = loop.call_later(_IDLE_SECONDS / 3, self._sweep)

    def _sweep(self) -> None:
        """Closes connections that have been idle for long, and schedules the next sweep while there are any."""
        loop = asyncio.get_running_loop()
        for origin, idle in list(self._idle.items()):
            while idle and (not idle[0].reusable or loop.time() - idle[0].idle_since > _IDLE_SECONDS):
                idle.popleft().abort()
            if not idle:
                del self._idle[origin]
        self._sweeping = loop.call_later(_IDLE_SECONDS / 3, self._sweep) if self._idle else None

    # New ones.

    async def _connect(self, origin: Origin) -> Connection:
        """Raises OSError, which ssl.SSLError is too."""
        if self._closed:
            raise OSError("the broker stops")
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                addresses = self._allowed(origin, await self._resolver.addresses(origin.host))
                return await self._connect_to_one(origin, addresses)
        except TimeoutError:
            raise OSError(f"no connection to {origin.host}:{origin.port} in time") from None

    def _allowed(self, origin: Origin, addresses: list[str]) -> list[str]:
        """Returns the addresses that the policy allows; these are the ones to connect to.

        Raises _AddressDenied if it allows none.
        """
        allowed = [address for address in addresses if self._policy.denied(address) is None]
        if allowed or not addresses:
            return allowed
        kind = self._policy.denied(addresses[0])
        raise _AddressDenied(f"the address of {origin.host} is {kind}; the address policy of this broker denies it")

    async def _connect_to_one(self, origin: Origin, addresses: list[str]) -> Connection:
        """Connects to the first address that accepts a connection."""
        failure: OSError = OSError("there is no address")
        for left, address in zip(range(len(addresses) - 1, -1, -1), addresses, strict=True):
            try:
                async with asyncio.timeout(_ADDRESS_SECONDS if left else None):
                    return await self._open(origin, address)
            except OSError as error:
                failure = error
        raise failure

    async def _open(self, origin: Origin, address: str) -> Connection:
        _, connection = await asyncio.get_running_loop().create_connection(
            Connection,
            address,
            origin.port,
            ssl=self._tls if origin.is_tls else None,
            server_hostname=origin.host if origin.is_tls else None,
            ssl_handshake_timeout=_CONNECT_SECONDS if origin.is_tls else None,
        )
        return connection


async def _read_body(connection: Connection, seconds: float | None) -> None:
    try:
        async with asyncio.timeout(seconds):
            await connection.end_of_body()
    except TimeoutError:
        pass  # the received part is sufficient


def _serialise(start: bytes, request: PushRequest) -> bytes:
    """Raises ValueError for headers that are none; making them is the envelope's affair, this only looks."""
    head = _header_lines(tuple(request.headers.items()))
    if b"\nAuthorization: Basic " in start and "Authorization" in request.headers:
        start = start[: start.index(b"\nAuthorization: Basic ") + 1]  # the token goes first
    return b"%s%sContent-Length: %d\r\n\r\n%s" % (start, head, len(request.body), request.body)


@lru_cache(maxsize=1_000)  # headers of a subscription are mostly the same
def _header_lines(fields: tuple[tuple[str, str], ...]) -> bytes:
    lines = "".join([f"{name}: {value}\r\n" for name, value in fields]).encode("ascii")
    if lines.count(b"\n") != len(fields) or lines.count(b"\r") != len(fields):
        raise ValueError("a header of the request has a line break")
    return lines


def _parse_retry_after(connection: Connection) -> float | None:
    """Seconds, from a number of seconds or an HTTP date (https://www.rfc-editor.org/rfc/rfc9110#section-10.2.3).

    A date is compared with the answer's own Date where there is one: the endpoint's clock may be wrong.
    """
    text = connection.retry_after.decode("latin-1").strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:10]), MAX_RETRY_AFTER)
    until = _parse_date(text)
    if until is None:
        return None
    since = _parse_date(connection.date.decode("latin-1")) or datetime.now(UTC)
    seconds = (until - since).total_seconds()
    return min(seconds, MAX_RETRY_AFTER) if seconds >= 0 else None


def _parse_date(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except _UNREADABLE_DATES:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
