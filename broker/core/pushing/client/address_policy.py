"""Decides to which addresses pushes may be sent.

Any caller of the API can name an endpoint.  With `deny`, an endpoint cannot be used to reach hosts that only the
broker's own network reaches (request forgery).  The rule is applied to the address of the connection, after the
name was resolved, so that a name cannot evade it by resolving to a public address first and to a private one later.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# Addresses outside the public Internet: the IANA registries of special-purpose addresses, and multicast.
# https://www.iana.org/assignments/iana-ipv4-special-registry, …/iana-ipv6-special-registry.  The list is our own,
# because Python's `is_private` and `is_global` differ from version to version.
_SPECIAL: tuple[tuple[str, str], ...] = (
    ("0.0.0.0/8", "unspecified"),
    ("10.0.0.0/8", "private"),
    ("100.64.0.0/10", "shared (carrier-grade NAT)"),
    ("127.0.0.0/8", "loopback"),
    ("168.63.129.16/32", "the platform's of an Azure machine"),  # only formally public
    ("169.254.0.0/16", "link-local"),
    ("172.16.0.0/12", "private"),
    ("192.0.0.0/24", "reserved"),
    ("192.0.2.0/24", "reserved"),
    ("192.88.99.0/24", "reserved"),
    ("192.168.0.0/16", "private"),
    ("198.18.0.0/15", "reserved"),
    ("198.51.100.0/24", "reserved"),
    ("203.0.113.0/24", "reserved"),
    ("224.0.0.0/4", "multicast"),
    ("240.0.0.0/4", "reserved"),
    ("::/128", "unspecified"),
    ("::1/128", "loopback"),
    ("64:ff9b:1::/48", "private (NAT64)"),
    ("2001::/23", "reserved"),  # Teredo, ORCHID, benchmarking
    ("2001:db8::/32", "reserved"),
    ("2002::/16", "reserved (6to4)"),
    ("3fff::/20", "reserved"),
    ("fc00::/7", "unique-local"),
    ("fe80::/10", "link-local"),
    ("fec0::/10", "site-local"),
    ("ff00::/8", "multicast"),
)
_NETWORKS = tuple((ip_network(text), kind) for text, kind in _SPECIAL)
# The only public range of IPv6 (https://www.iana.org/assignments/ipv6-address-space); the rest has forms that stand
# for an address of IPv4, such as ::a.b.c.d and ::ffff:0:a.b.c.d.
_PUBLIC_IPV6 = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressPolicy:
    """Private addresses are refused unless `allow_private`, or one of the `allowed` networks has them."""

    allow_private: bool = True
    allowed: Sequence[Network] = ()

    def denied(self, address: str) -> str | None:
        """Returns the kind of an address that nothing may connect to ("private"); None for one that is allowed."""
        if self.allow_private:
            return None
        reached = _reached(ip_address(address))
        if any(reached in network for network in self.allowed if network.version == reached.version):
            return None
        return _kind(reached)


ALLOW_ALL = AddressPolicy()


def _kind(address: Address) -> str | None:
    """Returns the kind of an address that is not public; None for one that is."""
    for network, kind in _NETWORKS:
        if address.version == network.version and address in network:
            return kind
    return "reserved" if isinstance(address, IPv6Address) and address not in _PUBLIC_IPV6 else None


def _reached(address: Address) -> Address:
    """The address of IPv4 that an IPv6 form stands for (IPv4-mapped, NAT64), else the address itself."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFF_FFFF)
        if address.scope_id is not None:
            return IPv6Address(int(address))
    return address


def parse_address_policy(private_addresses: str, allowed_networks: str) -> AddressPolicy:
    """The policy that the settings describe: "allow" or "deny", and networks with commas between.

    Raises ValueError.
    """
    if private_addresses not in ("allow", "deny"):
        raise ValueError(f"private addresses are to be allowed or denied, not {private_addresses!r}")
    return AddressPolicy(allow_private=private_addresses == "allow", allowed=parse_networks(allowed_networks))


def parse_networks(text: str) -> tuple[Network, ...]:
    """Networks (CIDR) with commas between.  Raises ValueError, which names the one that is none."""
    return tuple(ip_network(part) for part in filter(None, (part.strip() for part in text.split(","))))
