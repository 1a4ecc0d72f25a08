"""The cells of the database that contain secrets.  An encrypted secret can only be decrypted in its own cell."""

from collections.abc import Callable, Mapping

from broker.access.secrets.secrets import Cell


def webhook_cell(subscription: str) -> Cell:
    """The secrets of a subscription's webhook, by the subscription's full name."""
    return Cell("subscriptions", subscription, "webhook_secrets")


def signing_key_cell(key_id: str) -> Cell:
    """A key that signs the tokens of pushes."""
    return Cell("signing_keys", key_id, "private_key")


def token_key_cell(key_id: str) -> Cell:
    """A key that signs access tokens."""
    return Cell("access_token_keys", key_id, "secret")


CELLS: Mapping[str, Callable[[str], Cell]] = {
    "subscriptions": webhook_cell,
    "signing_keys": signing_key_cell,
    "access_token_keys": token_key_cell,
}
