"""Key pairs of service accounts: the private key is returned once, the public key is stored."""

import secrets
from typing import NamedTuple

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key

_KEY_BITS, _EXPONENT = 2048, 65537


class KeyPair(NamedTuple):
    """A key pair in PEM; `key_id` has 40 hexadecimal digits, as Google's."""

    key_id: str
    private_key: str
    public_key: str


def make_key_pair() -> KeyPair:
    """Takes up to a second of a processor."""
    private_key = generate_private_key(_EXPONENT, _KEY_BITS)
    private = private_key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = private_key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return KeyPair(secrets.token_hex(20), private.decode("ascii"), public.decode("ascii"))


def make_unique_id() -> str:
    """The numeric id of an account: 21 digits, as Google's, and never again the same."""
    return str(10**20 + secrets.randbelow(9 * 10**20))
