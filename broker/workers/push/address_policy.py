"""STUB: which addresses pushes may go to."""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressPolicy:
    allow_private: bool = True
    allowed: Sequence[IPv4Network | IPv6Network] = ()
