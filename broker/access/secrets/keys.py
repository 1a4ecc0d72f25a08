"""The file with the keys that encrypt secrets in the database.

Each line is a key: 32 bytes in base64, as `openssl rand -base64 32` prints them.  The first key encrypts, and all
keys decrypt.  Lines that begin with # are comments.  The name of a key is derived from its bytes, so that a wrong
key is never taken for another.
"""

import base64
import binascii
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

FILE_NAME = "secrets.key"  # in the data directory of an embedded database

_KEY_BYTES = 32  # AES-256
_ID_DIGITS = 8


@dataclass(frozen=True, slots=True)
class SecretsKey:
    """`secret` has 32 bytes."""

    secret: bytes = field(repr=False)

    @property
    def key_id(self) -> str:
        """The first 8 hexadecimal digits of its SHA-256, which tell nothing of it."""
        return sha256(self.secret).hexdigest()[:_ID_DIGITS]


def make_key() -> SecretsKey:
    """A new one, at random."""
    return SecretsKey(secrets.token_bytes(_KEY_BYTES))


def read_keys(path: Path) -> tuple[SecretsKey, ...]:
    """Reads the keys of a file.  The first of them encrypts.

    Raises ValueError, which never quotes the file, and OSError.
    """
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except UnicodeDecodeError:
        raise ValueError("it is not a file of keys") from None
    keys: dict[SecretsKey, None] = {}
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if text:
            keys[_key(text, number)] = None
    if not keys:
        raise ValueError("it has no key")
    return tuple(keys)


def format_keys(keys: Sequence[SecretsKey]) -> str:
    """Returns the content of a file with these keys."""
    return "".join(f"{base64.b64encode(key.secret).decode()}\n" for key in keys)


def _key(text: str, line: int) -> SecretsKey:
    try:
        secret = base64.b64decode(text, validate=True)
    except binascii.Error:
        secret = b""
    if len(secret) != _KEY_BYTES:
        raise ValueError(
            f"line {line} is not the base64 of {_KEY_BYTES} bytes (`openssl rand -base64 32` makes it)"
        )
    return SecretsKey(secret)
