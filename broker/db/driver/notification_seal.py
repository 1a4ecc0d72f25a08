"""Seals notifications, so that only brokers can read and send them.

Every role of a database may LISTEN and NOTIFY on any channel.  So messages between brokers are encrypted and
authenticated with a key that is in their schema (docs/decisions/0083).  A role without the key learns no names, and
its notifications are ignored.
"""

import base64
import binascii
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from broker.db.driver.database import Connection

_NONCE_BYTES = 16
MAX_TEXT = 5_800  # bytes; sealed, it fits the 8,000 that PostgreSQL refuses


class NotificationSeal:
    """AES-SIV with a random nonce, so that two notifications of the same text differ."""

    def __init__(self, key: bytes) -> None:
        self._cipher = AESSIV(key)

    def seal(self, channel: str, text: str) -> str:
        """The payload for a text, which no other channel takes."""
        nonce = os.urandom(_NONCE_BYTES)
        sealed = nonce + self._cipher.encrypt(text.encode(), [channel.encode(), nonce])
        return base64.b64encode(sealed).decode()

    def open(self, channel: str, payload: str) -> str | None:
        """The text of a payload; None: no broker of this schema has sealed it for the channel."""
        try:
            sealed = base64.b64decode(payload, validate=True)
            nonce, rest = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
            return self._cipher.decrypt(rest, [channel.encode(), nonce]).decode()
        except (binascii.Error, InvalidTag, ValueError):
            return None


async def read_seal(connection: Connection) -> NotificationSeal:
    """Reads the seal, with the key that a migration has made."""
    row = await (await connection.execute(b"SELECT key FROM notification_keys")).fetchone()
    assert row is not None, "a migration has made the row"
    return NotificationSeal(bytes(row[0]))
