"""How finely, for how long, and in which rows history is kept."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


class Tier(NamedTuple):
    """A resolution of history: points of `resolution` seconds are kept for `kept`."""

    resolution: int
    kept: timedelta


TIERS = (Tier(10, timedelta(hours=1)), Tier(60, timedelta(hours=24)), Tier(600, timedelta(days=14)))
FINEST, COARSEST = TIERS[0], TIERS[-1]
CHUNK = 128  # series whose points are a row together
ROLL_UPS = tuple(pairwise(TIERS))  # each tier is made of the one before


def floor(moment: datetime, seconds: int) -> datetime:
    """Returns the start of the period of so many seconds that contains a time."""
    period = seconds * SECOND
    return EPOCH + (moment - EPOCH) // period * period
