"""The interface through which features observe subscriptions as a process reads and changes them."""

from typing import Protocol

from broker.model.subscription import Subscription


class SubscriptionListener(Protocol):
    """Hears of subscriptions from the `ResourceCache`, which has the listeners of a process.

    The methods are called on the event loop, often for the same subscription again, so they return at once.
    """

    def subscription_read(self, subscription: Subscription) -> None:
        """Called with the present state of a subscription that was read, created or changed."""

    def subscription_gone(self, name: str) -> None:
        """Called when no subscription has this name, or another process pushes its messages."""

    def is_interested(self, name: str) -> bool:
        """Whether to read the subscription again once it changes, even if nothing else asks for it."""
