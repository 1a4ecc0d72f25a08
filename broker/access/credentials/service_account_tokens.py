"""Tokens of service accounts: those that their keys sign, and the access tokens that these are exchanged for.

* Self-signed: https://google.aip.dev/auth/4111, for an audience or with scopes, as Google's libraries make them.
* Exchanged: https://www.rfc-editor.org/rfc/rfc7523 (POST /token).  An access token becomes invalid with the key
  that it was exchanged for, and with the account.
"""

import secrets
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import jwt

from broker.access.credentials import refusals
from broker.access.credentials.access_token_key_rows import AccessTokenKey
from broker.access.credentials.directory import CredentialDirectory, public_key
from broker.access.credentials.proven import Proven
from broker.access.credentials.tokens import Unverified, audiences_of, check_times, read_token, verify
from broker.access.principals.caller import ALL_AUTHENTICATED_USERS, ALL_USERS, Caller
from broker.access.principals.service_account import ServiceAccount
from broker.model.errors import Unauthenticated, Unavailable

LIFETIME = timedelta(hours=1)  # Google's, of both kinds
SIGNS_FOR = timedelta(days=30)  # a key of access tokens, until there is a newer one

# What Google's libraries ask for when they are not told otherwise: a host of theirs, whatever the endpoint is.
GOOGLES_AUDIENCES = frozenset(
    f"https://{service}.googleapis.com/"
    for service in ("pubsub", "iam", "iamcredentials", "cloudresourcemanager", "apikeys")
)
GOOGLES_TOKEN_URLS = frozenset(
    ("https://oauth2.googleapis.com/token", "https://www.googleapis.com/oauth2/v4/token")
)
SCOPES = frozenset(f"https://www.googleapis.com/auth/{scope}" for scope in ("pubsub", "cloud-platform", "iam"))
_SERVICES = ("google.pubsub.v1.Publisher", "google.pubsub.v1.Subscriber", "google.pubsub.v1.SchemaService")
_OURS = "https://iam.broker.internal"  # the `iss` and `aud` of access tokens: they are for nobody else


def make_token_key(now: datetime) -> AccessTokenKey:
    return AccessTokenKey(key_id=secrets.token_hex(16), secret=secrets.token_bytes(32), created_at=now)


class ServiceAccountTokens:
    """Verifies what belongs to a service account of this broker, and makes access tokens."""

    def __init__(self, directory: CredentialDirectory, *, audiences: Collection[str]) -> None:
        """`audiences`: URLs that the broker is addressed by, beside Google's."""
        self._directory = directory
        bases = {*(audience.rstrip("/") for audience in audiences)}
        self._token_urls = GOOGLES_TOKEN_URLS | {f"{base}/token" for base in bases}
        named = {f"{base}/" for base in bases} | GOOGLES_AUDIENCES
        self._audiences = named | bases | {f"{audience}{service}" for audience in named for service in _SERVICES}

    def is_of_key(self, token: Unverified) -> bool:
        """Whether it names a key of an account; or no key at all, but an account that issued it (`iss`)."""
        current = self._directory.current
        return token.key_id in current.keys if token.key_id else token.issuer in current.accounts

    def is_access_token(self, token: Unverified) -> bool:
        """Whether it names a key of this broker's."""
        return token.key_id in self._directory.current.token_keys

    def check_self_signed(self, token: Unverified, *, now: datetime) -> Proven:
        """Raises Unauthenticated."""
        account, key_id, claims = self._signed_by_key(token)
        _check_enabled(account)
        until = check_times(claims, now=now, longest=LIFETIME)
        if claims.get("iss") != account.email or claims.get("sub", account.email) != account.email:
            raise refusals.invalid("is not of the account whose key has signed it (iss, sub)")
        scope = claims.get("scope")
        scopes = scope.split() if isinstance(scope, str) else []
        audiences = audiences_of(claims)
        if audiences and not self._audiences.intersection(audiences):
            raise refusals.invalid("is for another audience (aud)")
        if not audiences and not SCOPES.intersection(scopes):
            raise refusals.invalid("is for no audience (aud) and for no scope of this service (scope)")
        return Proven(_caller(account, f"key:{key_id}"), until)

    def check_access_token(self, token: Unverified, *, now: datetime) -> Proven:
        """Raises Unauthenticated."""
        current = self._directory.current
        claims = verify(token, current.token_keys[token.key_id].secret, ["HS256"])
        until = check_times(claims, now=now, longest=LIFETIME)
        key_id = str(claims.get("key"))
        account = current.account_of(key_id)
        if audiences_of(claims) != [_OURS] or account is None or account.unique_id != claims.get("sub"):
            raise refusals.invalid("belongs to a key or an account that is gone")
        _check_enabled(account)
        return Proven(_caller(account, f"key:{key_id}"), until)

    def exchange(self, assertion: bytes, *, now: datetime) -> str:
        """An access token for what a key has signed to get one.

        Raises Unauthenticated; Unavailable: there is no key to sign with yet.
        """
        token = read_token(assertion)
        if not self.is_of_key(token):
            raise refusals.invalid("is not signed by a key of a service account of this broker")
        account, key_id, claims = self._signed_by_key(token)
        _check_enabled(account)
        check_times(claims, now=now, longest=LIFETIME)
        if claims.get("iss") != account.email or claims.get("sub", account.email) != account.email:
            raise refusals.invalid("is not of the account whose key has signed it (iss, sub)")
        if not self._token_urls.intersection(audiences_of(claims)):
            raise refusals.invalid("is not for the broker's /token (aud)")
        return self._access_token(account, key_id, now)

    def still_holds(self, caller: Caller) -> bool:
        """Whether the key of a caller that was let in is still one of that account, which is not disabled."""
        account = self._directory.current.account_of(caller.credential.removeprefix("key:"))
        return account is not None and account.member == caller.member and not account.disabled

    def caller_of_key(self, key_id: str) -> Caller:
        """Returns the caller that a key authenticates.

        Raises Unauthenticated if the key is gone, or its account is gone or disabled.
        """
        account = self._directory.current.account_of(key_id)
        if account is None:
            raise refusals.revoked()
        _check_enabled(account)
        return _caller(account, f"key:{key_id}")

    def _signed_by_key(self, token: Unverified) -> tuple[ServiceAccount, str, Mapping[str, Any]]:
        """The account whose key has signed a token, the id of the key, and the claims.

        A token need not name its key (RFC 7515, section 4.1.4), and those of Google's libraries for PHP and Ruby do
        not: the newest keys of the account that issued it are tried then.  Raises Unauthenticated.
        """
        current = self._directory.current
        account = current.account_of(token.key_id) if token.key_id else current.accounts.get(token.issuer)
        if account is None:
            raise refusals.invalid("belongs to an account that is gone")
        key_ids = [token.key_id] if token.key_id else current.key_ids.get(account.email, [])
        for key_id in key_ids:
            with suppress(Unauthenticated):
                return account, key_id, verify(token, public_key(current.keys[key_id][1]), ["RS256"])
        raise refusals.invalid("is not signed as it should be")

    def _access_token(self, account: ServiceAccount, key_id: str, now: datetime) -> str:
        keys = self._directory.current.token_keys
        if not keys:
            raise Unavailable("There is no key that signs access tokens yet; try again.")
        key = next(reversed(keys.values()))
        issued = int(now.timestamp())
        claims = {
            "iss": _OURS,
            "aud": _OURS,
            "sub": account.unique_id,
            "key": key_id,
            "iat": issued,
            "exp": issued + int(LIFETIME.total_seconds()),
        }
        return jwt.encode(claims, key.secret, algorithm="HS256", headers={"kid": key.key_id, "typ": "at+jwt"})


def _check_enabled(account: ServiceAccount) -> None:
    if account.disabled:
        raise refusals.account_disabled()


def _caller(account: ServiceAccount, credential: str) -> Caller:
    members = frozenset({account.member, ALL_USERS, ALL_AUTHENTICATED_USERS})
    return Caller(account.member, members, credential)
