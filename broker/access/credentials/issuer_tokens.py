"""Tokens of issuers outside of the broker: ID and access tokens (JWT) of OpenID Connect."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from hmac import compare_digest
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

    async def check_again(self, caller: Caller) -> None:
        """Checks that the issuer of a caller's token still has the key that signed it.  Reads its keys if needed.

        Raises Unauthenticated; Unavailable: the keys of that issuer cannot be read.
        """
        for name, (_, keys) in self._issuers.items():
            if caller.credential.startswith(_credential(name, "")) and await keys.find_thumbprint(caller.signed_by):
                return
        raise refusals.revoked()

    def is_of_issuer(self, token: Unverified) -> bool:
        """Whether it names one of them."""
        return token.issuer in self._issuers

    async def check(self, token: Unverified, *, now: datetime) -> Proven:
        """Raises Unauthenticated; Unavailable: the issuer's keys cannot be read."""
        issuer, claims, thumbprint, until = await self._verified(token, now)
        if not set(issuer.audiences).intersection(audiences_of(claims)):
            raise refusals.invalid("is for another audience (aud)")
        return Proven(replace(_caller(issuer, claims), signed_by=thumbprint), until)

    async def check_id_token(
        self, token: Unverified, *, issuer: str, client_id: str, nonce: str, now: datetime
    ) -> Caller:
        """Returns the caller of an ID token that answers a sign-in with this nonce.

        https://openid.net/specs/openid-connect-core-1_0.html, section 3.1.3.7.  Raises Unauthenticated;
        Unavailable: the issuer's keys cannot be read.
        """
        if token.issuer != issuer:
            raise refusals.invalid("is of another issuer (iss)")
        found, claims, thumbprint, _ = await self._verified(token, now)
        audiences = audiences_of(claims)
        if client_id not in audiences:
            raise refusals.invalid("is for another audience (aud)")
        if claims.get("azp", client_id) != client_id or (len(audiences) > 1 and "azp" not in claims):
            raise refusals.invalid("was issued to another client (azp)")
        answered = claims.get("nonce")
        if not isinstance(answered, str) or not compare_digest(answered.encode(errors="replace"), nonce.encode()):
            raise refusals.invalid("answers another sign-in (nonce)")
        return replace(_caller(found, claims), signed_by=thumbprint)

    async def _verified(
        self, token: Unverified, now: datetime
    ) -> tuple[OidcIssuer, Mapping[str, Any], str, datetime]:
        """Returns the issuer, the claims, the thumbprint of the key that has signed them, and until when they hold.

        Raises Unauthenticated, Unavailable.
        """
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
        return issuer, claims, key.thumbprint, until


def _caller(issuer: OidcIssuer, claims: Mapping[str, Any]) -> Caller:
    """Returns the caller of a token.

    It is the user with the token's address, if the issuer may speak for that, else the token's subject.
    """
    subject = claims.get(issuer.subject_claim)
    if not isinstance(subject, str) or not subject:
        raise refusals.invalid(f"does not say whom it is of ({issuer.subject_claim})")
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
    credential = _credential(issuer.issuer, shown if isinstance(shown, str) else subject)
    return Caller(member, frozenset(members), credential)


def _credential(issuer: str, token: str) -> str:
    return f"oidc:{issuer}:{token}"


def _speaks_for(issuer: OidcIssuer, address: str) -> bool:
    local, _, domain = address.rpartition("@")
    return bool(local) and domain.lower() in issuer.domains


def _texts(value: Any) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [one for one in values[:MAX_GROUPS] if isinstance(one, str) and one]
