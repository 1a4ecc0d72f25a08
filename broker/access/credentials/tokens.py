"""Parses and verifies JSON Web Tokens.  The key determines the algorithm, never the token.

https://www.rfc-editor.org/rfc/rfc8725 (best practices) describes the attacks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from broker.access.credentials import refusals

MAX_TOKEN_BYTES = 16_384  # far more than any issuer's with a few hundred groups
LEEWAY = timedelta(seconds=60)  # by which the clocks of an issuer and of the database may differ
_MAX_SECONDS = 4_102_444_800  # the year 2100: what is beyond is no time

Key = RSAPublicKey | EllipticCurvePublicKey | bytes

# Times are checked below, against the database's clock; audiences are checked by the callers of these functions.
_SIGNATURE_ALONE: Any = {
    "verify_signature": True,
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
    "verify_iss": False,
    "verify_sub": False,
    "verify_jti": False,
}
_NOTHING: Any = {"verify_signature": False}


@dataclass(frozen=True, slots=True)
class Unverified:
    """The unverified header and issuer of a token: for finding the key, and for nothing else."""

    token: str
    key_id: str
    algorithm: str
    issuer: str


def read_token(token: bytes) -> Unverified:
    """Raises Unauthenticated for what is no token."""
    if len(token) > MAX_TOKEN_BYTES:
        raise refusals.invalid(f"is longer than {MAX_TOKEN_BYTES} bytes")
    try:
        text = token.decode("ascii")
        read = jwt.decode_complete(text, options=_NOTHING)
    except (UnicodeDecodeError, jwt.PyJWTError, ValueError, RecursionError):
        raise refusals.invalid("is none that can be read") from None
    header, claims = read["header"], read["payload"]
    if "crit" in header:
        raise refusals.invalid("asks for extensions that are not known (crit)")
    return Unverified(text, _text(header, "kid"), _text(header, "alg"), _text(claims, "iss"))


def verify(token: Unverified, key: Key, algorithms: Sequence[str]) -> Mapping[str, Any]:
    """The claims of a token that this key has signed, with one of its own algorithms.  Raises Unauthenticated."""
    try:
        return jwt.decode(token.token, key, algorithms=list(algorithms), options=_SIGNATURE_ALONE)
    except (jwt.PyJWTError, ValueError, TypeError):
        raise refusals.invalid("is not signed as it should be") from None


def check_times(claims: Mapping[str, Any], *, now: datetime, longest: timedelta | None = None) -> datetime:
    """Checks the times of a token and returns its expiration time, with the leeway.

    `longest`: the longest time from `iat`, which is required then, to `exp`.  Raises Unauthenticated.
    """
    ends = _seconds(claims, "exp")
    if ends is None:
        raise refusals.invalid("does not say when it expires (exp)")
    at, leeway = now.timestamp(), LEEWAY.total_seconds()
    if ends + leeway <= at:
        raise refusals.expired()
    issued = _seconds(claims, "iat")
    for begins in (issued, _seconds(claims, "nbf")):
        if begins is not None and begins - leeway > at:
            raise refusals.invalid("is not valid yet (iat, nbf)")
    if longest is not None:
        if issued is None:
            raise refusals.invalid("does not say when it was made (iat)")
        if ends - issued > (longest + LEEWAY).total_seconds():
            raise refusals.invalid(f"lives longer than {longest.total_seconds():.0f} seconds")
    return datetime.fromtimestamp(ends + leeway, tz=now.tzinfo)


def audiences_of(claims: Mapping[str, Any]) -> list[str]:
    """Returns the audiences of a token; of a list, those that are texts."""
    audience = claims.get("aud")
    if isinstance(audience, str):
        return [audience]
    return [one for one in audience if isinstance(one, str)] if isinstance(audience, list) else []


def _seconds(claims: Mapping[str, Any], name: str) -> float | None:
    """A time.  Raises Unauthenticated if there is something else."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MAX_SECONDS:
        raise refusals.invalid(f"has no time in {name}")
    return float(value)


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""
