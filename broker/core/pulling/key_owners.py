"""Remembers the stream that last received an ordering key, so that it receives the next messages of the key (A6).

This is a preference, not a guarantee: if the owner of a key has no capacity, or has left, another stream gets the
key.
"""

from collections.abc import Callable, Hashable, Sequence

from broker.model.delivery import Delivery

MAX_KEYS = 10_000  # of a subscription; beyond that the oldest keys are forgotten


class KeyOwners:
    """The owners of keys, by subscription and key, among the streams of this process."""

    def __init__(self) -> None:
        self._owners: dict[int, dict[str, Hashable]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._owners.values()))

    def note(self, subscription_id: int, owner: Hashable, deliveries: Sequence[Delivery]) -> None:
        """Let `owner` own the ordering keys of these deliveries."""
        for delivery in deliveries:
            if delivery.ordered and (key := delivery.messages[0].ordering_key) is not None:
                owners = self._owners.setdefault(subscription_id, {})
                owners[key] = owner
                if len(owners) > MAX_KEYS:
                    del owners[next(iter(owners))]

    def preferred(self, subscription_id: int, owners: Sequence[Hashable | None]) -> Callable[[str], int | None]:
        """Returns a function that maps a key to the index in `owners` of its owner, or to None."""
        known = self._owners.get(subscription_id)
        if not known or len(owners) == 1:
            return lambda key: None
        indexes = {owner: index for index, owner in enumerate(owners) if owner is not None}
        return lambda key: indexes.get(known.get(key))

    def forget(self, subscription_id: int, owner: Hashable | None = None) -> None:
        """Forget an owner of keys of the subscription, or (None) all: it has left for good."""
        owners = self._owners.get(subscription_id)
        if owners is None:
            return
        if owner is not None:
            for key in [key for key, known in owners.items() if known == owner]:
                del owners[key]
        if owner is None or not owners:
            del self._owners[subscription_id]
