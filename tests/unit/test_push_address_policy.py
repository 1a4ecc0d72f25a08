"""Which addresses pushes may go to."""

import pytest

from broker.workers.push.address_policy import ALLOW_ALL, parse_address_policy

DENY = parse_address_policy("deny", "")

PRIVATE = [
    "0.0.0.0", "10.1.2.3", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.8.8.8", "169.254.169.254",
    "172.16.0.1", "172.31.255.255", "192.168.1.1", "192.0.0.8", "198.18.0.1", "203.0.113.9", "224.0.0.1",
    "239.1.1.1", "240.0.0.1", "255.255.255.255", "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1",
    "fd12::1", "fec0::1", "ff02::1",
    "2001:db8::1", "2002:7f00:1::1", "2002:808:808::1", "2001:0:1::1", "::127.0.0.1", "::ffff:127.0.0.1",
    "::ffff:10.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "64:ff9b::10.0.0.1", "64:ff9b:1::808:808",
]  # fmt: skip
PUBLIC = [
    "8.8.8.8", "1.1.1.1", "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1", "192.167.1.1", "11.0.0.1",
    "2606:4700::1111", "2a00:1450:4001::200e", "::ffff:8.8.8.8", "64:ff9b::808:808",
]  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_that_is_not_public_is_denied(address: str) -> None:
    refusal = DENY.refusal(address)
    assert refusal is not None
    assert "policy" in refusal
    assert address in refusal


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_not(address: str) -> None:
    assert DENY.refusal(address) is None


@pytest.mark.parametrize("address", PRIVATE + PUBLIC)
def test_without_the_policy_every_address_is_fine(address: str) -> None:
    assert ALLOW_ALL.refusal(address) is None
    assert parse_address_policy("allow", "10.0.0.0/8").refusal(address) is None


def test_allowed_networks_are_exceptions_in_any_form_of_their_addresses() -> None:
    policy = parse_address_policy("deny", "10.1.0.0/16, fd00:1::/32,192.168.5.5")
    for address in ("10.1.2.3", "::ffff:10.1.2.3", "fd00:1::2", "192.168.5.5"):
        assert policy.refusal(address) is None
    for address in ("10.2.0.1", "fd00:2::2", "192.168.5.6", "127.0.0.1"):
        assert policy.refusal(address) is not None


@pytest.mark.parametrize(
    ("mode", "networks", "reason"),
    [
        ("maybe", "", "push_private_addresses must be allow or deny, not 'maybe'"),
        ("deny", "10.0.0.0/8,nonsense", "push_allowed_networks: 'nonsense'"),
        ("deny", "10.0.0.1/8", "push_allowed_networks: 10.0.0.1/8 has host bits set"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_with_a_reason(mode: str, networks: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_address_policy(mode, networks)
