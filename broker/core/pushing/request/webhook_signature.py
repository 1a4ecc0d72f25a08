"""Signatures of pushes by Standard Webhooks 1.0 (https://www.standardwebhooks.com), scheme v1.

webhook-id          the same for every attempt of a message, so that a receiver can tell a repeat
webhook-timestamp   of this attempt, in seconds: a receiver refuses old requests that somebody sends again
webhook-signature   "v1," and base64 of HMAC-SHA256 over id.timestamp.body; one for each secret, spaces between,
                    so that a secret can be replaced while receivers still know the old one
"""

import base64
import binascii
import hmac
from collections.abc import Sequence
from datetime import datetime

_PREFIX = "whsec_"


class WebhookSigner:
    """Signs with all of `secrets`, each "whsec_" and base64 (the prefix may be absent)."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self._keys = [_key(secret) for secret in secrets]

    def headers(self, webhook_id: str, body: bytes, *, now: datetime) -> dict[str, str]:
        """The three headers of a request with this body, sent now."""
        timestamp = str(int(now.timestamp()))
        signed = f"{webhook_id}.{timestamp}.".encode() + body
        signatures = [base64.b64encode(hmac.digest(key, signed, "sha256")).decode() for key in self._keys]
        return {
            "webhook-id": webhook_id,
            "webhook-timestamp": timestamp,
            "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
        }


def _key(secret: str) -> bytes:
    text = secret.removeprefix(_PREFIX)
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        return text.encode()  # refused when a subscription is written; a stored one must not stop all pushes
