"""The public keys of an issuer: discovered, cached, and read again when a token names an unknown key.

An issuer that is slow or unreachable delays no caller whose key is known.  Documents that name another issuer, that
contain secrets instead of public keys, or that are too large are rejected.

https://openid.net/specs/openid-connect-discovery-1_0.html
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from broker.access.principals.oidc_issuer import OidcIssuer, check_url
from broker.model.errors import Unavailable
from broker.observability.state_changes import StateChanges

FETCH_SECONDS = 5.0  # for both documents
AGAIN_SECONDS = 10.0  # at least, between two fetches for keys that are not known
MAX_AGE_SECONDS = 600.0  # within which keys are read anew: one that was withdrawn is believed no longer
REFRESH_SECONDS = 60.0  # between two times that a process looks for keys that are about to be so old
MAX_KEYS = 100
_TROUBLE = "issuers"
_LEAST_RSA_BITS = 2048
_PARTS = ("kty", "n", "e", "crv", "x", "y")  # of a public key
_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_EC = {"secp256r1": ("ES256",), "secp384r1": ("ES384",), "secp521r1": ("ES512",)}


@dataclass(frozen=True)
class IssuerKey:
    """`algorithms`: those that the kind of key allows, whatever a token says; `thumbprint` names the key alone."""

    key: RSAPublicKey | EllipticCurvePublicKey
    algorithms: tuple[str, ...]

    @cached_property
    def thumbprint(self) -> str:
        return sha256(self.key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


class IssuerKeys:
    """The keys of one issuer, in this process."""

    def __init__(
        self,
        issuer: OidcIssuer,
        states: StateChanges,
        *,
        withdrawn: Callable[[], None] = lambda: None,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        """`withdrawn()` is called when the issuer no longer has a key that it had.  `states` reports that the keys
        cannot be read.  `ticks`: seconds, of a clock that only goes forward.
        """
        self._issuer = issuer
        self._states = states
        self._withdrawn = withdrawn
        self._ticks = ticks
        self._keys: Mapping[str, IssuerKey] = {}
        self._read_at = self._tried_at = float("-inf")
        self._fetch: asyncio.Task[None] | None = None

    async def find(self, key_id: str) -> IssuerKey | None:
        """The key of that id; None: the issuer has none.  Raises Unavailable: its keys cannot be read."""
        await self._read_unless(lambda: key_id in self._keys)
        return self._keys.get(key_id)

    async def find_thumbprint(self, thumbprint: str) -> bool:
        """Whether the issuer has this key, which this process may not have read yet.

        Raises Unavailable: its keys cannot be read.
        """
        await self._read_unless(lambda: self.has(thumbprint))
        return self.has(thumbprint)

    async def refresh(self) -> None:
        """Reads the keys again if they are in use and would be too old by the next time."""
        now = self._ticks()
        if self._keys and now - self._read_at > MAX_AGE_SECONDS - REFRESH_SECONDS - FETCH_SECONDS:
            self._begin_fetch(now)
        if self._fetch is not None:
            await asyncio.shield(self._fetch)

    def has(self, thumbprint: str) -> bool:
        """Whether this is one of the keys that were read last."""
        return any(key.thumbprint == thumbprint for key in self._keys.values())

    async def _read_unless(self, is_known: Callable[[], bool]) -> None:
        """Reads the keys unless the needed one is known, or they were read just now.  Raises Unavailable."""
        now = self._ticks()
        if not is_known() and now - self._tried_at > AGAIN_SECONDS:
            self._begin_fetch(now)
        if self._fetch is not None and not is_known():
            await asyncio.shield(self._fetch)
        if self._read_at == float("-inf"):
            raise Unavailable("The keys of the token's issuer cannot be read; try again.")

    def _begin_fetch(self, now: float) -> None:
        if self._fetch is None:
            self._tried_at = now
            self._fetch = asyncio.create_task(self._fetch_keys(), name="issuer keys")

    async def _fetch_keys(self) -> None:
        from broker.access.credentials.issuer_documents import UNREADABLE, reason_of  # slow to load

        issuer = self._issuer.issuer
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                keys = await self._read()
        except UNREADABLE as error:
            # What is known stays; the next call that needs more tries again.
            why = reason_of(error, FETCH_SECONDS)
            self._states.begins(_TROUBLE, issuer, f"the keys of the issuer {issuer} cannot be read", why)
        else:
            before, self._keys, self._read_at = self._keys, keys, self._ticks()
            if not all(self.has(key.thumbprint) for key in before.values()):
                self._withdrawn()
            self._states.ends(_TROUBLE, issuer, f"the keys of the issuer {issuer} are read again")
        finally:
            self._fetch = None

    async def _read(self) -> Mapping[str, IssuerKey]:
        from broker.access.credentials.issuer_documents import Disbelieved, discover, make_client, read_document

        uri = self._issuer.jwks_uri
        async with make_client(FETCH_SECONDS) as client:
            if not uri:
                uri = str((await discover(client, self._issuer.issuer)).get("jwks_uri"))
                check_url(uri)
            keys = (await read_document(client, uri)).get("keys")
        if not isinstance(keys, list) or len(keys) > MAX_KEYS:
            raise Disbelieved(f"there is no list of at most {MAX_KEYS} keys")
        return {str(key["kid"]): found for key in keys if (found := _public_key(key)) is not None}


def _public_key(jwk: Any) -> IssuerKey | None:
    """None for what verifies no signature: a secret, a weak key, one for another use, or none that can be read."""
    if not isinstance(jwk, dict) or not isinstance(jwk.get("kid"), str) or jwk.get("use", "sig") != "sig":
        return None
    if jwk.get("kty") not in ("RSA", "EC") or "d" in jwk:
        return None
    try:
        key = jwt.PyJWK.from_dict({name: jwk[name] for name in _PARTS if name in jwk}).key
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    if isinstance(key, RSAPublicKey) and key.key_size >= _LEAST_RSA_BITS:
        return IssuerKey(key, _RSA)
    if isinstance(key, EllipticCurvePublicKey) and key.curve.name in _EC:
        return IssuerKey(key, _EC[key.curve.name])
    return None
