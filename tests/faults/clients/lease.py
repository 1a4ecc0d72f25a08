"""What receivers do with what they get: ack it, in whole or in part, nack, extend, let it expire, forget it."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence

from tests.faults.history import Delivery, Settle

_ACK = None
_SHORT = 1  # seconds; what a receiver sets that wants to see an expiry
_LONG = 20
_LEARNED = 0.06  # the share of deliveries

# Which change to which of the messages, one after the other; and how often this is done.
STYLES: dict[str, tuple[int, tuple[tuple[str, float | None], ...]]] = {
    "ack": (60, (("every", _ACK),)),
    "ack in pieces": (
        8,
        (("both parts", _ACK), ("every", _ACK)),
    ),  # some may be refused that come before their turn
    "ack some, nack the others": (6, (("some", _ACK), ("others", 0))),
    "ack some, let the others expire": (3, (("some", _ACK), ("others", _SHORT))),
    "nack the first": (4, (("first", 0), ("all but the first", _ACK))),
    "nack one of the middle": (4, (("middle", 0), ("all but the middle", _ACK))),
    "nack all": (4, (("every", 0),)),
    "extend": (4, (("every", _LONG), ("pause", 0.3), ("every", _ACK))),
    "expire": (2, (("every", _SHORT),)),
    "shorten one of the middle": (2, (("middle", _SHORT), ("every", _ACK))),
    "ack too late": (2, (("every", _SHORT), ("pause", _SHORT + 0.2), ("every", _ACK))),
    "forget": (1, ()),
}

Send = Callable[[Sequence[str], float | None], Awaitable[Settle]]


class Handling:
    """How a client handles its responses.  `settling`: it acks everything from now on, but what nobody can handle;
    `learns`: at last it can, and now and then before.
    """

    def __init__(self, dice: random.Random, *, learns: bool = False) -> None:
        self._dice = dice
        self._learns = learns
        self.settling = False

    async def handle(self, deliveries: Sequence[Delivery], send: Send) -> None:
        """Settle the messages of one response, or do not; `send(ack_ids, seconds)` does it and notes it."""
        poison = [d.ack_id for d in deliveries if d.attributes.get("poison") and self._is_poison(d)]
        if poison:
            await send(poison, 0)
        good = [d.ack_id for d in deliveries if d.ack_id not in set(poison)]
        if good:
            await self._handle(good, send)

    def _is_poison(self, delivery: Delivery) -> bool:
        if delivery.attempt is None or (self._learns and self.settling):
            return False
        return not self._learns or self._dice.random() >= _LEARNED

    async def _handle(self, ack_ids: list[str], send: Send) -> None:
        styles = {"ack": STYLES["ack"]} if self.settling else STYLES
        style = self._dice.choices(list(styles), [weight for weight, _ in styles.values()])[0]
        chosen = self._choose(ack_ids)
        for which, seconds in styles[style][1]:
            if which == "pause":
                await asyncio.sleep((seconds or 0) + self._dice.uniform(-0.1, 0.2))
            elif which == "both parts":  # at a time
                parts = [chosen[part] for part in ("some", "others") if chosen[part]]
                await asyncio.gather(*(send(part, seconds) for part in parts))
            elif chosen[which]:
                await send(chosen[which], seconds)

    def _choose(self, every: list[str]) -> dict[str, list[str]]:
        some = set(self._dice.sample(every, self._dice.randint(1, len(every))))
        middle = self._dice.choice(every)
        return {
            "every": every,
            "some": [ack_id for ack_id in every if ack_id in some],
            "others": [ack_id for ack_id in every if ack_id not in some],
            "first": every[:1],
            "all but the first": every[1:],
            "middle": [middle],
            "all but the middle": [ack_id for ack_id in every if ack_id != middle],
        }


def now() -> float:
    """The clock of histories."""
    return time.monotonic()
