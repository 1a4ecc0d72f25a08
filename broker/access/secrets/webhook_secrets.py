"""The secrets of a subscription's webhook.  They stay encrypted until a request has to be signed."""

from dataclasses import replace

from broker.access.secrets.cells import webhook_cell
from broker.access.secrets.secrets import Secrets, is_sealed
from broker.model.push_config import SealedSecret, fingerprint
from broker.model.subscription import Subscription


def sealed(subscription: Subscription, secrets: Secrets) -> Subscription:
    """Encrypts the webhook secrets of a subscription for storage.  Encrypted ones stay as they are."""
    push = subscription.extensions.push
    if not push.webhook_secrets:
        return subscription
    as_stored = tuple(_sealed(secret, subscription.name, secrets) for secret in push.webhook_secrets)
    extensions = replace(subscription.extensions, push=replace(push, webhook_secrets=as_stored))
    return replace(subscription, extensions=extensions)


def opened(subscription: Subscription, secrets: Secrets) -> list[str]:
    """The secrets themselves.  Raises CannotOpen."""
    cell = webhook_cell(subscription.name)
    return [
        secrets.open(secret.encode(), cell).decode() if isinstance(secret, SealedSecret) else secret
        for secret in subscription.extensions.push.webhook_secrets or ()
    ]


def _sealed(secret: str, subscription: str, secrets: Secrets) -> str:
    if isinstance(secret, SealedSecret):
        return secret
    stored = secrets.seal(secret.encode(), webhook_cell(subscription))
    return SealedSecret.of(stored.decode(), fingerprint(secret)) if is_sealed(stored) else secret
