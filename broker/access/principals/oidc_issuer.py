"""External issuers of tokens (OpenID Connect), as the operator's file describes them."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from broker.access.principals.service_account import DOMAIN

_FIELDS = {"issuer", "audiences", "domains", "groups_claim", "attribute_claims", "jwks_uri"}


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcIssuer:
    """`audiences`: its tokens are for one of them.  `domains`: of the addresses and groups that it may speak for.
    `groups_claim`: names of groups.  `attribute_claims`: what policies may choose callers by, besides.
    `jwks_uri`: where its keys are; "": its discovery document says so.
    """

    issuer: str
    audiences: Sequence[str]
    domains: Sequence[str] = ()
    groups_claim: str = "groups"
    attribute_claims: Sequence[str] = ()
    jwks_uri: str = ""

    @property
    def authority(self) -> str:
        """The issuer as members name it: without its scheme."""
        return self.issuer.partition("://")[2].rstrip("/")


def parse_issuers(text: str) -> tuple[OidcIssuer, ...]:
    """Parses a file (TOML) with a table `[[issuer]]` for each issuer.  Raises ValueError that names the field."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"no TOML: {error}") from None
    tables = document.pop("issuer", [])
    if document or not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ValueError("it has tables [[issuer]], and nothing else")
    issuers = tuple(_issuer(table) for table in tables)
    if len({issuer.issuer for issuer in issuers}) != len(issuers):
        raise ValueError("an issuer is there twice")
    return issuers


def check_url(url: str) -> None:
    """Raises ValueError for a URL whose answers anybody on the way could make up."""
    parts = urlsplit(url)
    if parts.scheme == "https" and parts.hostname and not (parts.username or parts.password):
        return
    if parts.scheme == "http" and _is_loopback(parts.hostname or ""):
        return
    raise ValueError(f"{url!r} must be an https:// URL (http:// of this machine alone)")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _issuer(table: Mapping[str, Any]) -> OidcIssuer:
    if unknown := table.keys() - _FIELDS:
        raise ValueError(f"{min(unknown)} is no field of an issuer ({', '.join(sorted(_FIELDS))})")
    issuer = OidcIssuer(
        issuer=_text(table, "issuer", ""),
        audiences=_texts(table, "audiences"),
        domains=[domain.lower() for domain in _texts(table, "domains")],
        groups_claim=_text(table, "groups_claim", "groups"),
        attribute_claims=_texts(table, "attribute_claims"),
        jwks_uri=_text(table, "jwks_uri", ""),
    )
    check_url(issuer.issuer)
    if issuer.jwks_uri:
        check_url(issuer.jwks_uri)
    if not issuer.audiences:
        raise ValueError(f"{issuer.issuer} needs audiences: else a token for anybody else would do")
    if any(domain == DOMAIN or domain.endswith(f".{DOMAIN}") for domain in issuer.domains):
        raise ValueError(f"nobody but the broker speaks for {DOMAIN} (domains)")
    return issuer


def _text(table: Mapping[str, Any], name: str, default: str) -> str:
    value = table.get(name, default)
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a text")
    return value


def _texts(table: Mapping[str, Any], name: str) -> list[str]:
    value = table.get(name, [])
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise ValueError(f"{name} must be a list of texts")
    return value
