"""Secrets that browsers keep: that of a session, and the token of a link.  The database has their digests."""

import secrets

from broker.access.principals.api_key import digest_of

MAX_SECRET = 128  # characters; ours have 43


def make_secret() -> tuple[str, bytes]:
    """Returns a secret of 256 random bits, which may be in a cookie or an address, and its digest."""
    secret = secrets.token_urlsafe(32)
    return secret, digest_of(secret.encode())


def digest_of_secret(secret: str) -> bytes | None:
    """Returns the digest by which a secret is looked up; None for a text that is no secret of ours."""
    return digest_of(secret.encode()) if 0 < len(secret) <= MAX_SECRET and secret.isascii() else None
