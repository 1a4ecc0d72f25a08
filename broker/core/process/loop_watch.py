"""How late the event loop is: what a call waits for before anything is done for it; and what would make it so.

Python looks for cycles among what is young once 50,000 more objects were made than freed (cli/server/worker.py).
Where thousands of calls that waited end while as many begin that takes long to come, and what is young becomes
millions: one check is a tenth of a second then, in which nobody is answered (M1).  So there is one ten times a
second, and one at all else once a minute.
"""

import asyncio
import gc
from itertools import count
from time import perf_counter

from broker.observability.metrics.counters import Counters
from broker.observability.metrics.families import LOOP_DELAY

WATCH_SECONDS = 0.1
FULL_COLLECTION_EVERY = 600  # every so many times


async def watch_loop(counters: Counters) -> None:
    """Note how late a timer is, and collect what is young, again and again."""
    for number in count(1):
        begun = perf_counter()
        await asyncio.sleep(WATCH_SECONDS)
        late = perf_counter() - begun - WATCH_SECONDS
        LOOP_DELAY.observe(counters.process, max(int(late * 1e6), 0))
        gc.collect(1 if number % FULL_COLLECTION_EVERY else 2)
