"""Tokens of issuers outside of the broker: ID and access tokens (JWT) of OpenID Connect."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from broker.access.credentials import refusals
from broker.access.credentials.issuer_keys import IssuerKeys
from broker.access.credentials.proven import Proven
from broker.access.credentials.tokens import Unverified, audiences_of, check_times, verify
from broker.access.principals.caller import ALL_AUTHENTICATED_USERS, ALL_USERS, Caller
from broker.access.principals.oidc_issuer import OidcIssuer
from broker.observability.state_changes import StateChanges

MAX_GROUPS = 500


class IssuerTokens:
    """Verifies the tokens of the issuers that the operator has named."""

    def __init__(self, issuers: Iterable[OidcIssuer], states: StateChanges) -> None:
        self._watchers: list[Callable[[], None]] = []
        self._issuers = {
            issuer.issuer: (issuer, IssuerKeys(issuer, states, withdrawn=self._withdrawn)) for issuer in issuers
        }

    def after_withdrawal(self, watch: Callable[[], None]) -> None:
        """Call `watch()` when an issuer has withdrawn a key, to check callers again that were let in before."""
        self._watchers.append(watch)

    def _withdrawn(self) -> None:
        for watch in self._watchers:
            watch()

    async def refresh(self) -> None:
        """Reads the keys again that would soon be too old, so that those that were withdrawn are noticed."""
        await asyncio.gather(*(keys.refresh() for _, keys in self._issuers.values()))

    def still_holds(self, caller: Caller) -> bool:
        """Whether the key that has signed the token of a caller that was let in is still one of an issuer's."""
        return any(keys.has(caller.signed_by) for _, keys in self._issuers.values())

    def is_of_issuer(self, token: Unverified) -> bool:
        """Whether it names one of them."""
        return token.issuer in self._issuers

    async def check(self, token: Unverified, *, now: datetime) -> Proven:
        """Raises Unauthenticated; Unavailable: the issuer's keys cannot be read."""
        issuer, keys = self._issuers[token.issuer]
        key = await keys.find(token.key_id)
        if key is None:
            raise refusals.invalid("is of no key of its issuer")
        if token.algorithm not in key.algorithms:
            raise refusals.invalid("is not signed as its key can")
        claims = verify(token, key.key, key.algorithms)
        until = check_times(claims, now=now)
        if claims.get("iss") != issuer.issuer:
            raise refusals.invalid("is of another issuer (iss)")
        if not set(issuer.audiences).intersection(audiences_of(claims)):
            raise refusals.invalid("is for another audience (aud)")
        return Proven(replace(_caller(issuer, claims), signed_by=key.thumbprint), until)


def _caller(issuer: OidcIssuer, claims: Mapping[str, Any]) -> Caller:
    """Returns the caller of a token.

    It is the user with the token's address, if the issuer may speak for that, else the token's subject.
    """
    subject = claims.get("sub")
    if not isinstance(subject, str) or not subject:
        raise refusals.invalid("does not say whom it is of (sub)")
    principal = f"principal://{issuer.authority}/subject/{subject}"
    members = {principal, ALL_USERS, ALL_AUTHENTICATED_USERS}
    member = principal
    email = claims.get("email")
    if isinstance(email, str) and claims.get("email_verified") in (True, "true") and _speaks_for(issuer, email):
        member = f"user:{email.lower()}"
        members |= {member, f"domain:{email.rpartition('@')[2].lower()}"}
    for group in _texts(claims.get(issuer.groups_claim)):
        members.add(f"principalSet://{issuer.authority}/group/{group}")
        if _speaks_for(issuer, group):
            members.add(f"group:{group.lower()}")
    for claim in issuer.attribute_claims:
        members |= {
            f"principalSet://{issuer.authority}/attribute.{claim}/{value}" for value in _texts(claims.get(claim))
        }
    shown = claims.get("jti")
    credential = f"oidc:{issuer.issuer}:{shown if isinstance(shown, str) else subject}"
    return Caller(member, frozenset(members), credential)


def _speaks_for(issuer: OidcIssuer, address: str) -> bool:
    local, _, domain = address.rpartition("@")
    return bool(local) and domain.lower() in issuer.domains


def _texts(value: Any) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [one for one in values[:MAX_GROUPS] if isinstance(one, str) and one]
