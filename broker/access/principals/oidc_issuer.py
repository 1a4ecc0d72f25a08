"""External issuers of tokens (OpenID Connect), as the operator's file describes them."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from broker.access.principals.service_account import DOMAIN

_FIELDS = {
    *("issuer", "audiences", "domains", "subject_claim", "groups_claim", "attribute_claims", "jwks_uri"),
    "sign_in",
}
SCOPES = ("openid", "email", "profile")
_SIGN_IN_FIELDS = {"client_id", "client_secret_file", "scopes", "redirect_url", "title"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInClient:
    """The console as a client of an issuer, for the authorization code flow.

    `client_secret_file`: "" for a client without a secret.  `redirect_url`: where the issuer sends the user back
    to; "": the address of the broker and /console/oidc/callback.  `title`: what the sign-in page calls the issuer.
    """

    client_id: str
    client_secret_file: str = ""
    scopes: Sequence[str] = SCOPES
    redirect_url: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcIssuer:
    """`audiences`: its tokens are for one of them.  `domains`: of the addresses and groups that it may speak for.
    `subject_claim`: names the principal.  `groups_claim`: names of groups.  `attribute_claims`: what policies may
    choose callers by, besides.  `jwks_uri`: where its keys are; "": its discovery document says so.  `sign_in`:
    None if nobody signs in to the console through it.
    """

    issuer: str
    audiences: Sequence[str]
    domains: Sequence[str] = ()
    subject_claim: str = "sub"
    groups_claim: str = "groups"
    attribute_claims: Sequence[str] = ()
    jwks_uri: str = ""
    sign_in: SignInClient | None = None

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
        subject_claim=_text(table, "subject_claim", "sub"),
        groups_claim=_text(table, "groups_claim", "groups"),
        attribute_claims=_texts(table, "attribute_claims"),
        jwks_uri=_text(table, "jwks_uri", ""),
        sign_in=_sign_in(table["sign_in"]) if "sign_in" in table else None,
    )
    check_url(issuer.issuer)
    if issuer.jwks_uri:
        check_url(issuer.jwks_uri)
    if not issuer.audiences and issuer.sign_in is None:
        raise ValueError(f"{issuer.issuer} needs audiences: else a token for anybody else would do")
    if any(domain == DOMAIN or domain.endswith(f".{DOMAIN}") for domain in issuer.domains):
        raise ValueError(f"nobody but the broker speaks for {DOMAIN} (domains)")
    return issuer


def _sign_in(table: Any) -> SignInClient:
    if not isinstance(table, dict):
        raise ValueError("sign_in must be a table [issuer.sign_in]")
    if unknown := table.keys() - _SIGN_IN_FIELDS:
        raise ValueError(f"{min(unknown)} is no field of sign_in ({', '.join(sorted(_SIGN_IN_FIELDS))})")
    client = SignInClient(
        client_id=_text(table, "client_id", ""),
        client_secret_file=_text(table, "client_secret_file", ""),
        scopes=_texts(table, "scopes") or SCOPES,
        redirect_url=_text(table, "redirect_url", ""),
        title=_text(table, "title", ""),
    )
    if not client.client_id:
        raise ValueError("sign_in needs client_id, which the issuer gave the console")
    if "openid" not in client.scopes:
        raise ValueError("scopes of sign_in must have openid: without it there is no ID token")
    if client.redirect_url:
        check_url(client.redirect_url)
    return client


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
