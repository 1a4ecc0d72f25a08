"""The stored form of secrets: `enc1:KEYID:BASE64`, AES-256-GCM with a random nonce of 12 bytes before the
ciphertext.

The ciphertext is bound to its cell, so a copy in another row cannot be decrypted.  A value without the prefix is
clear text, stored before a key was configured.
"""

import base64
import binascii
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from broker.access.secrets.keys import SecretsKey, read_keys
from broker.model.errors import os_reason

SEALED = "enc1:"
_NONCE_BYTES = 12


@dataclass(frozen=True, slots=True)
class Cell:
    """The location of a secret in the database."""

    table: str
    row: str
    field: str

    @property
    def bound(self) -> bytes:
        """The associated data (of GCM) that an encrypted secret is bound to."""
        return "\0".join((self.table, self.row, self.field)).encode()


class CannotOpen(Exception):
    """A secret cannot be decrypted; the message says why, for the operator, in a few words."""


class Secrets:
    """The keys of a file, and what is done with them.

    `is_sealing`: what is written is encrypted.  SecretKeeper (broker/features/secrets/worker.py) sets it where
    there is a key.
    """

    def __init__(self, key_file: str = "") -> None:
        """`key_file` "": there is no key, and secrets are stored as they are.  Raises ValueError, OSError."""
        self._path = Path(key_file) if key_file else None
        self._stamp: tuple[int, ...] = ()
        self._keys: dict[str, SecretsKey] = {}  # the one that encrypts first
        self.is_sealing = False
        if self._path is not None:
            self._read(self._path)

    @property
    def has_key(self) -> bool:
        """Whether secrets can be encrypted."""
        return bool(self._keys)

    @property
    def key_id(self) -> str:
        """The id of the key that encrypts; "" if there is none."""
        return next(iter(self._keys), "")

    @property
    def key_ids(self) -> frozenset[str]:
        """The ids of the keys that decrypt."""
        return frozenset(self._keys)

    def reload(self) -> str:
        """Read the file anew if it has changed.  Returns why it cannot be ("": it can); the keys stay then."""
        if self._path is None:
            return ""
        try:
            self._read(self._path)
        except OSError as error:
            return f"{self._path}: {os_reason(error)}"
        except ValueError as error:
            return f"{self._path}: {error}"
        return ""

    def _read(self, path: Path) -> None:
        found = path.stat()
        stamp = found.st_ino, found.st_mtime_ns, found.st_size
        if stamp != self._stamp:
            self._keys = {key.key_id: key for key in read_keys(path)}
            self._stamp = stamp

    def seal(self, clear: bytes, cell: Cell) -> bytes:
        """Encrypts a secret as it is stored in the cell.  Without a key it stays in clear text."""
        if not self.is_sealing:
            return clear
        key = self._keys[self.key_id]
        nonce = os.urandom(_NONCE_BYTES)
        sealed = nonce + AESGCM(key.secret).encrypt(nonce, clear, cell.bound)
        return f"{SEALED}{key.key_id}:{base64.b64encode(sealed).decode()}".encode()

    def open(self, stored: bytes, cell: Cell) -> bytes:
        """The clear text of what is stored there.  Raises CannotOpen."""
        if not is_sealed(stored):
            return stored
        key_id, text = _parts(stored)
        key = self._key(key_id)
        try:
            sealed = base64.b64decode(text, validate=True)
            return AESGCM(key.secret).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], cell.bound)
        except (InvalidTag, binascii.Error, ValueError):
            raise CannotOpen(f"what is stored was changed, or belongs elsewhere (key {key_id})") from None

    def _key(self, key_id: str) -> SecretsKey:
        why = ""
        if key_id not in self._keys:  # it may be new
            why = self.reload()
        if key_id not in self._keys:
            raise CannotOpen(why or self.why_absent(key_id))
        return self._keys[key_id]

    def why_absent(self, key_id: str) -> str:
        """Explains that a key is missing."""
        if self._path is None:
            return f"it is encrypted with the key {key_id}, and no key is given (--secrets-key-file)"
        return f"it is encrypted with the key {key_id}, which {self._path} does not have (--secrets-key-file)"


def is_sealed(stored: bytes) -> bool:
    """Whether it is encrypted."""
    return stored.startswith(SEALED.encode())


def key_id_of(sealed: bytes) -> str:
    """Returns the id of the key that a secret is encrypted with."""
    return _parts(sealed)[0]


def _parts(sealed: bytes) -> tuple[str, str]:
    key_id, _, text = sealed.decode("ascii", "replace").removeprefix(SEALED).partition(":")
    return key_id, text
