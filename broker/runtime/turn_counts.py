"""Counts the turns that projects have, and the time for which they wait for them and hold them (M1).

The counts show who waits for whom: for each kind of turns, the projects whose waits grow wait for the projects that
hold them.
"""

import asyncio
from collections.abc import Sequence

from broker.store.claim.request import Claimed
from broker.telemetry.metrics.counters import Counters
from broker.telemetry.metrics.families import (
    EXPIRED,
    EXPIRED_MESSAGES,
    FAN_OUT_DEPTH,
    FAN_OUT_WIDTH,
    TURN_HELD,
    TURN_WAITS,
    TURNS,
)


class TurnCounts:
    """Counts the turns of one kind (families.TURN_KINDS) in one process."""

    def __init__(self, counters: Counters, kind: str) -> None:
        self._counters = counters
        self._turns, self._waits, self._held = TURNS[kind], TURN_WAITS[kind], TURN_HELD[kind]

    def ended(self, project: str, *, waited: float, held: float) -> None:
        """Count a turn of a project ("projects/p"), with the seconds for which it was waited for and held."""
        block = self._counters.project(project)
        block[self._turns] += 1
        block[self._waits] += int(waited * 1e6)
        block[self._held] += int(held * 1e6)

    def waited(self, project: str, seconds: float) -> None:
        """Count a wait that ended without a turn, or whose turn is counted apart."""
        self._counters.project(project)[self._waits] += int(seconds * 1e6)


class ClaimCounts:
    """Counts claims: their turns, the messages that each hands out, and those that it finds to have expired."""

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
        """Count a claim: what it handed out, and for each subscription by name the messages that have expired, or
        whose ack deadline had passed.
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
