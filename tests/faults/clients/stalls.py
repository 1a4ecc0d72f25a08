"""Notes when the load itself stood still: what came meanwhile was read late, and answers were late."""

import asyncio

from tests.faults.clients.lease import now
from tests.faults.history import Fault, History

_TICK_SECONDS = 0.1
_LATE_SECONDS = 0.5

STALL = "the load stood still"


async def note_stalls(history: History) -> None:
    """Until it is cancelled."""
    while True:
        began = now()
        await asyncio.sleep(_TICK_SECONDS)
        ended = now()
        if ended - began > _TICK_SECONDS + _LATE_SECONDS:
            history.add(Fault(who="load", began=began, ended=ended, name=STALL, delays=True))
