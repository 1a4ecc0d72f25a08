"""The part of a client's address by which per-address limits are counted."""

from functools import lru_cache
from ipaddress import IPv6Address

_PREFIX_BITS = 64  # of an IPv6 address: a client that has one address has all of its /64 network


@lru_cache(4096)
def counted_address(host: str) -> str:
    """The address itself, or the /64 network of an IPv6 address; "" if it is not known."""
    if ":" not in host:
        return host
    try:
        address = IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{IPv6Address(int(address) >> _PREFIX_BITS << _PREFIX_BITS)}/{_PREFIX_BITS}"
