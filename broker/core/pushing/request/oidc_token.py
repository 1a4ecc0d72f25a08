"""The bearer tokens of pushes: OpenID Connect ID tokens like Google's, signed with the broker's own keys.

    made ──1 day──► signs for 30 days ──successor signs──► published 2 hours more ──► deleted
         published from the beginning: verifiers that cache the keys know it before it signs

The keys are in the database, so that all processes sign with, and publish, the same ones.  A key is replaced when
it is 29 days old, by the first process that notices.  If no process runs at that time, the old key continues to
sign until its successor does.
"""

import asyncio
import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key

from broker.access.secrets.cells import signing_key_cell
from broker.access.secrets.secrets import CannotOpen, Secrets
from broker.core.process.database_clock import DatabaseClock
from broker.core.pushing.request.signing_key_rows import (
    SigningKey,
    delete_signing_keys,
    insert_signing_key,
    list_signing_keys,
)
from broker.db.driver.database import Database
from broker.model.errors import Unavailable

REFRESH_SECONDS = 60.0  # how often every process checks for new keys; must be far below PUBLISHED_AHEAD

SIGNS_FOR = timedelta(days=30)
PUBLISHED_AHEAD = timedelta(days=1)
TOKEN_LIFETIME = timedelta(hours=1)  # Google's
PUBLISHED_AFTER = TOKEN_LIFETIME + timedelta(hours=1)  # the margin is for a process that learns late
WITHOUT_SUCCESSOR = timedelta(days=3650)  # the end of a key without a successor

REUSED_FOR = timedelta(minutes=50)  # a token lives for at least 10 minutes more when it arrives
MAX_TOKENS = 20_000  # some 25 MB

_ALGORITHM, _KEY_BITS, _EXPONENT = "RS256", 2048, 65537


@dataclass(frozen=True, slots=True)
class _LoadedKey:
    """`private_key` None: it cannot be decrypted, and `why`."""

    key_id: str
    private_key: RSAPrivateKey | None
    signs_from: datetime
    why: str = ""


class TokenSigner:
    """Signs tokens without waiting for anything; `refresh` first, and then about every REFRESH_SECONDS."""

    def __init__(
        self, database: Database, clock: DatabaseClock, *, issuer: str, secrets: Secrets | None = None
    ) -> None:
        """`issuer`: the tokens' `iss`.  `secrets` encrypt the keys."""
        self._database = database
        self._clock = clock
        self._issuer = issuer
        self._secrets = secrets or Secrets()
        self._keys: list[_LoadedKey] = []  # the newest last
        self._published: Mapping[str, Any] = {"keys": []}
        self._tokens: dict[tuple[str, str], tuple[datetime, str]] = {}  # the oldest first

    async def refresh(self) -> None:
        """Creates the key that is needed next, deletes those that are no longer needed, and loads the rest.

        Keys that cannot be decrypted are tried again each time.
        """
        now = self._clock.now()
        keys = await self._read()
        if not keys or (now >= keys[-1].signs_from + SIGNS_FOR - PUBLISHED_AHEAD and self._opens(keys[-1])):
            await self._succeed(keys[-1] if keys else None, now)
            keys = await self._read()
        if any(key.published_until < now for key in keys):
            async with self._database.transaction() as connection:
                await delete_signing_keys(connection, now=now)
            keys = [key for key in keys if key.published_until >= now]
        self._load(keys)

    def token(self, service_account_email: str, audience: str, *, now: datetime) -> str:
        """A token that is valid for at least 10 minutes more.  A millisecond when it is a new one, else nothing.

        Raises Unavailable before the first `refresh`, and where `why_none` has a reason.
        """
        made, token = self._tokens.get((service_account_email, audience), (None, ""))
        if made is not None and timedelta(0) <= now - made < REUSED_FOR:
            return token
        token = self._sign(service_account_email, audience, now)
        self._tokens.pop((service_account_email, audience), None)  # a renewed one goes to the end
        if len(self._tokens) >= MAX_TOKENS:
            del self._tokens[next(iter(self._tokens))]
        self._tokens[service_account_email, audience] = (now, token)
        return token

    def why_none(self, now: datetime) -> str:
        """Why no token can be signed, as far as the key is concerned; "": it can."""
        return self._key(now).why if self._keys else ""

    def published_keys(self) -> Mapping[str, Any]:
        """The JSON Web Key Set that verifies all tokens that are valid, and those to come within a day."""
        return self._published

    def _sign(self, email: str, audience: str, now: datetime) -> str:
        if not self._keys:
            raise Unavailable("The keys that sign tokens are not loaded yet.")
        key = self._key(now)
        if key.private_key is None:
            raise Unavailable("The key that signs tokens cannot be decrypted.")
        subject, issued = subject_of(email), int(now.timestamp())
        claims = {
            "iss": self._issuer,
            "aud": audience,
            "azp": subject,
            "sub": subject,
            "email": email,
            "email_verified": True,
            "iat": issued,
            "exp": issued + int(TOKEN_LIFETIME.total_seconds()),
        }
        return jwt.encode(claims, key.private_key, algorithm=_ALGORITHM, headers={"kid": key.key_id})

    def _key(self, now: datetime) -> _LoadedKey:
        return next((key for key in reversed(self._keys) if key.signs_from <= now), self._keys[0])

    async def _read(self) -> list[SigningKey]:
        async with self._database.transaction() as connection:
            return await list_signing_keys(connection)

    async def _succeed(self, newest: SigningKey | None, now: datetime) -> None:
        """Make the next key; if another process did meanwhile, its key is as good."""
        signs_from = max(newest.signs_from + SIGNS_FOR, now + PUBLISHED_AHEAD) if newest else now
        key = await asyncio.to_thread(_make_key, signs_from)
        stored = self._secrets.seal(key.private_key.encode(), signing_key_cell(key.key_id)).decode()
        async with self._database.transaction() as connection:
            await insert_signing_key(
                connection,
                key=replace(key, private_key=stored),
                after=newest.key_id if newest else None,
                others_published_until=signs_from + PUBLISHED_AFTER,
            )

    def _load(self, keys: Sequence[SigningKey]) -> None:
        known = {key.key_id: key for key in self._keys if key.private_key is not None}
        self._keys = [known.get(key.key_id) or self._loaded(key) for key in keys]
        jwks = [_public_jwk(key.key_id, key.private_key) for key in self._keys if key.private_key is not None]
        self._published = {"keys": jwks}

    def _opens(self, key: SigningKey) -> bool:
        """Returns whether this process can decrypt the newest key.

        A process that cannot makes no new key, which processes that can would be unable to decrypt.
        """
        with suppress(CannotOpen):
            return bool(self._secrets.open(key.private_key.encode(), signing_key_cell(key.key_id)))
        return False

    def _loaded(self, key: SigningKey) -> _LoadedKey:
        try:
            pem = self._secrets.open(key.private_key.encode(), signing_key_cell(key.key_id))
        except CannotOpen as error:
            return _LoadedKey(key.key_id, None, key.signs_from, str(error))
        return _LoadedKey(key.key_id, _load_key(pem), key.signs_from)


def subject_of(email: str) -> str:
    """The numeric id of a service account: 21 digits, as Google's, the same for an address at all times."""
    return str(10**20 + int.from_bytes(hashlib.sha256(email.encode()).digest()) % 10**20)


def _make_key(signs_from: datetime) -> SigningKey:
    private_key = generate_private_key(_EXPONENT, _KEY_BITS)  # up to a second
    pem = private_key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return SigningKey(
        key_id=_thumbprint(private_key),
        private_key=pem.decode("ascii"),
        signs_from=signs_from,
        published_until=signs_from + WITHOUT_SUCCESSOR,
    )


def _load_key(pem: bytes) -> RSAPrivateKey:
    """Load a key that a broker made.  To check its primes, as those of strangers are, would take 50 ms."""
    private_key = serialization.load_pem_private_key(pem, None, unsafe_skip_rsa_key_validation=True)
    assert isinstance(private_key, RSAPrivateKey)
    return private_key


def _thumbprint(private_key: RSAPrivateKey) -> str:
    """RFC 7638: what the key is, rather than a name that two processes could both choose."""
    jwk = _jwk(private_key)
    text = json.dumps({name: jwk[name] for name in ("e", "kty", "n")}, separators=(",", ":"))
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode("ascii")


def _jwk(private_key: RSAPrivateKey) -> dict[str, Any]:
    return jwt.algorithms.RSAAlgorithm.to_jwk(private_key.public_key(), as_dict=True)


def _public_jwk(key_id: str, private_key: RSAPrivateKey) -> dict[str, Any]:
    jwk = _jwk(private_key)
    return {"kty": "RSA", "use": "sig", "alg": _ALGORITHM, "kid": key_id, "n": jwk["n"], "e": jwk["e"]}
