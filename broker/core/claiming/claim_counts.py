"""Counts claims, and the turns that projects have to claim (M1)."""

import asyncio
from collections.abc import Sequence

from broker.core.claiming.transaction.request import Claimed
from broker.fairness.turn_counts import TurnCounts
from broker.observability.metrics.counters import Counters
from broker.observability.metrics.families import EXPIRED, EXPIRED_MESSAGES, FAN_OUT_DEPTH, FAN_OUT_WIDTH


class ClaimCounts:
    """Counts claims: their turns, the messages that each delivers, and those that it finds to have expired."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._turns = TurnCounts(counters, "claim")

    def turn_ended(self, project: str, asked: float, began: float) -> float:
        """Count a turn of a project ("": of consumers in doubt) that ends now, and return the seconds it lasted.

        `asked`, `began`: by the event loop's clock.
        """
        held = asyncio.get_running_loop().time() - began
        self._turns.ended(project, waited=began - asked, held=held)
        return held

    def claimed(self, results: Sequence[tuple[str, Claimed]]) -> None:
        """Counts the messages of a claim.

        They are those that it delivered, and for each subscription by name those that have expired, or whose ack
        deadline had passed.
        """
        handed_out = []
        for subscription, claimed in results:
            handed_out.append(sum([len(each.messages) for of in claimed.deliveries for each in of]))
            if claimed.expired or claimed.past:
                counts = self._counters.subscription(subscription)
                counts[EXPIRED] += claimed.expired
                counts[EXPIRED_MESSAGES] += claimed.past
        width = len(handed_out) - handed_out.count(0)
        if width:
            FAN_OUT_WIDTH.observe(self._counters.process, width)
            FAN_OUT_DEPTH.observe(self._counters.process, sum(handed_out))
