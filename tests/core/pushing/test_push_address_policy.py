"""Which addresses pushes may go to."""

import sys
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

import pytest

from broker.core.pushing.client.address_policy import ALLOW_ALL, parse_address_policy

DENY = parse_address_policy("deny", "")

# What is not globally reachable by the IANA registries, and the exceptions within: as `ipaddress.is_global` has it
# since Python 3.13.  Newer entries of the registries are in the list of Python 3.14.
NOT_GLOBAL = [
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
    "192.0.0.170/31", "192.0.2.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
    "240.0.0.0/4", "255.255.255.255/32",
    "::1/128", "::/128", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
    "fc00::/7", "fe80::/10",
]  # fmt: skip

PRIVATE = [
    "0.0.0.0", "10.1.2.3", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.8.8.8", "169.254.169.254",
    "172.16.0.1", "172.31.255.255", "192.168.1.1", "192.0.0.8", "198.18.0.1", "203.0.113.9", "224.0.0.1",
    "239.1.1.1", "240.0.0.1", "255.255.255.255", "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1",
    "fd12::1", "fec0::1", "ff02::1",
    "2001:db8::1", "2002:7f00:1::1", "2002:808:808::1", "2001:0:1::1", "::127.0.0.1", "::ffff:127.0.0.1",
    "::ffff:10.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "64:ff9b::10.0.0.1", "64:ff9b:1::808:808",
    "168.63.129.16", "::ffff:168.63.129.16", "64:ff9b::a83f:8110",  # Azure's, with the secrets of its machines
    "::ffff:0:10.0.0.1", "::ffff:0:169.254.169.254", "::ffff:0:8.8.8.8",  # as translators of IPv4 have it
    "fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "192.0.0.192",  # metadata of other clouds
    "64:ff9b:2::a00:1", "100::1", "100:0:0:1::1", "200::1", "4000::1", "5f00::1", "e000::1", "fe00::1",
]  # fmt: skip
PUBLIC = [
    "8.8.8.8", "1.1.1.1", "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1", "192.167.1.1", "11.0.0.1",
    "2606:4700::1111", "2a00:1450:4001::200e", "::ffff:8.8.8.8", "64:ff9b::808:808",
    "168.63.129.15", "168.63.129.17", "2001:4860:4860::8888", "2620:4f:8000::1", "3ffe:ffff::1",
]  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_that_is_not_public_is_denied(address: str) -> None:
    assert DENY.denied(address)


def _edges(network: IPv4Network | IPv6Network) -> list[str]:
    first, last = int(network.network_address), int(network.broadcast_address)
    inside = {first, last, (first + last) // 2}
    around = {n for n in (first - 1, last + 1) if 0 <= n < 1 << network.max_prefixlen}
    return [str(type(network.network_address)(n)) for n in sorted(inside | around)]


@pytest.mark.parametrize("text", NOT_GLOBAL)
def test_what_the_registries_call_not_global_is_denied_from_its_first_address_to_its_last(text: str) -> None:
    network = ip_network(text)
    for address in (network.network_address, network.broadcast_address):
        assert DENY.denied(str(address)) is not None


@pytest.mark.skipif(sys.version_info < (3, 13), reason="its lists are older than the registries")
def test_whatever_python_calls_not_global_is_denied() -> None:
    for text in (*NOT_GLOBAL, "64:ff9b::/96", "224.0.0.0/4", "2000::/3", "ff00::/8"):
        for address in map(ip_address, _edges(ip_network(text))):
            assert address.is_global or DENY.denied(str(address)) is not None, address


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_not(address: str) -> None:
    assert DENY.denied(address) is None


@pytest.mark.parametrize("address", PRIVATE + PUBLIC)
def test_without_the_policy_every_address_is_fine(address: str) -> None:
    assert ALLOW_ALL.denied(address) is None
    assert parse_address_policy("allow", "10.0.0.0/8").denied(address) is None


def test_allowed_networks_are_exceptions_in_any_form_of_their_addresses() -> None:
    policy = parse_address_policy("deny", "10.2.0.0/16, fd00:1::/32,192.168.5.5")
    for address in ("10.2.2.3", "::ffff:10.2.2.3", "fd00:1::2", "192.168.5.5"):
        assert policy.denied(address) is None
    for address in ("10.1.0.1", "fd00:2::2", "192.168.5.6", "127.0.0.1"):
        assert policy.denied(address) is not None


@pytest.mark.parametrize(
    ("mode", "networks", "reason"),
    [
        ("maybe", "", "private addresses are to be allowed or denied, not 'maybe'"),
        ("deny", "10.0.0.0/8,nonsense", "'nonsense' does not appear to be"),
        ("deny", "10.0.0.1/8", "10.0.0.1/8 has host bits set"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_with_a_reason(mode: str, networks: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_address_policy(mode, networks)
