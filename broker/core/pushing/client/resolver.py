"""Resolves names without the threads that other parts of the process use, so that fifty dead names delay none of
them.
"""

import asyncio
from collections import OrderedDict
from ipaddress import ip_address

import aiodns

_QUERY_SECONDS, _TRIES = 2.0, 2  # of each name server
_KEEP_SECONDS = 10.0  # addresses change; a burst of new connections to one name resolves it once
_MAX_NAMES = 10_000


class Resolver:
    """Looks names up with c-ares (the system's name servers and hosts file)."""

    def __init__(self) -> None:
        self._resolver: aiodns.DNSResolver | None = None  # made within the loop
        self._known: OrderedDict[str, tuple[float, list[str]]] = OrderedDict()
        self._asking: dict[str, asyncio.Lock] = {}

    async def addresses(self, host: str) -> list[str]:
        """The addresses of a name, best first; of an address, itself.  Raises OSError with a reason for people."""
        if _is_address(host):
            return [host]
        lock = self._asking.setdefault(host, asyncio.Lock())
        try:
            async with lock:
                return self._fresh(host) or await self._ask(host)
        finally:
            if not lock.locked() and self._asking.get(host) is lock:
                del self._asking[host]

    def _fresh(self, host: str) -> list[str] | None:
        known = self._known.get(host)
        return known[1] if known is not None and known[0] > asyncio.get_running_loop().time() else None

    async def _ask(self, host: str) -> list[str]:
        if self._resolver is None:
            self._resolver = aiodns.DNSResolver(timeout=_QUERY_SECONDS, tries=_TRIES)
        try:
            found = await self._resolver.getaddrinfo(host, type=1)  # a stream
        except aiodns.error.DNSError as error:
            raise OSError(f"the name {host} cannot be resolved: {error.args[-1]}") from None
        addresses = [
            address.decode() if isinstance(address := node.addr[0], bytes) else address for node in found.nodes
        ]
        if not addresses:
            raise OSError(f"the name {host} has no address")
        self._known[host] = (asyncio.get_running_loop().time() + _KEEP_SECONDS, addresses)
        self._known.move_to_end(host)
        if len(self._known) > _MAX_NAMES:
            self._known.popitem(last=False)
        return addresses

    async def close(self) -> None:
        if self._resolver is not None:
            await self._resolver.close()


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
