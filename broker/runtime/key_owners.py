"""Which stream had an ordering key last, so that the key's next messages go there as well (A6).

That is a preference, no promise: a key goes to whoever has room while its owner has none, or has left.
"""

from collections.abc import Callable, Hashable, Sequence

from broker.domain.delivery import Delivery

MAX_KEYS = 10_000  # of a subscription; then those that were noted first are forgotten


class KeyOwners:
    """By subscription and key, for the streams of this process."""

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
        """For each key, the index in `owners` of the one that it belongs to; None if that is not there."""
        known = self._owners.get(subscription_id)
        if not known or len(owners) == 1:
            return lambda key: None
        indexes = {owner: index for index, owner in enumerate(owners) if owner is not None}
        return lambda key: indexes.get(known.get(key))

    def forget(self, subscription_id: int, owner: Hashable | None = None) -> None:
        """An owner of the subscription does not come back; None: no stream of it is left."""
        owners = self._owners.get(subscription_id)
        if owners is None:
            return
        if owner is not None:
            for key in [key for key, known in owners.items() if known == owner]:
                del owners[key]
        if owner is None or not owners:
            del self._owners[subscription_id]
