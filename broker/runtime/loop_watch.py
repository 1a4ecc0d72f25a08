"""How late the event loop is: what a call waits for before anything is done for it."""

import asyncio
from time import perf_counter

from broker.telemetry.metrics.counters import Counters
from broker.telemetry.metrics.families import LOOP_DELAY

WATCH_SECONDS = 0.5


async def watch_loop(counters: Counters) -> None:
    """Note how late a timer is, again and again."""
    while True:
        begun = perf_counter()
        await asyncio.sleep(WATCH_SECONDS)
        late = perf_counter() - begun - WATCH_SECONDS
        LOOP_DELAY.observe(counters.process, max(int(late * 1e6), 0))
