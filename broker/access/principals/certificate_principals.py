"""The principals of client certificates: a mapping from subject alternative names."""

import re
import tomllib
from collections.abc import Mapping
from typing import Any

from broker.access.principals.policy import MAX_MEMBER
from broker.access.principals.service_account import DOMAIN, is_own_address

Name = tuple[str, str]  # kind and value, as Python's ssl gives them: ("URI", "spiffe://example.com/worker")
CertificatePrincipals = Mapping[Name, str]  # members, as policies name them

_KINDS = {"dns": "DNS", "uri": "URI", "email": "email"}
_MEMBER = re.compile(r"(user|serviceAccount):[^@\s\0]+@[^@\s\0]+")


def parse_certificate_principals(text: str) -> CertificatePrincipals:
    """Parses a file (TOML) with a table [[certificate]] for each name.  Raises ValueError that says where."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"no TOML: {error}") from None
    tables = document.pop("certificate", [])
    if document or not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ValueError("it has tables [[certificate]], and nothing else")
    principals: dict[Name, str] = {}
    for table in tables:
        name, member = _entry(table)
        if name in principals:
            raise ValueError(f"{name[1]!r} is there twice")
        principals[name] = member
    return principals


def comparable(name: Name) -> Name:
    """Names of DNS, and the hosts of addresses, are the same in capitals (RFC 5280, section 7.2 and 7.5)."""
    kind, value = name
    if kind == "DNS":
        return kind, value.lower()
    if kind == "email":
        local, at, host = value.rpartition("@")
        return kind, f"{local}{at}{host.lower()}"
    return name


def _entry(table: Mapping[str, Any]) -> tuple[Name, str]:
    kinds, member = table.keys() - {"member"}, table.get("member")
    if len(kinds) != 1 or not kinds <= _KINDS.keys():
        raise ValueError(f"a certificate has `member`, and one of {', '.join(_KINDS)}")
    [kind] = kinds
    value = table[kind]
    if not isinstance(value, str) or not value or "*" in value:
        raise ValueError(f"{kind} must be the whole name, without * ({value!r})")
    if not isinstance(member, str) or len(member) > MAX_MEMBER or not _MEMBER.fullmatch(member):
        raise ValueError(f"member must be user:ADDRESS or serviceAccount:ADDRESS, not {member!r}")
    what, _, address = member.partition(":")
    address = address.lower()
    if (what == "serviceAccount") != is_own_address(address):
        raise ValueError(f"service accounts, and they alone, have addresses of this broker (…{DOMAIN}): {member}")
    return comparable((_KINDS[kind], value)), f"{what}:{address}"
