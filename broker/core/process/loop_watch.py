"""Measures the delay of the event loop, and runs the garbage collector so that its pauses stay short.

Python searches the young generation for cycles when 50,000 more objects were created than freed
(cli/server/worker.py).  If thousands of waiting calls end while as many begin, this threshold is reached late, and
the young generation grows to millions of objects: one collection then takes a tenth of a second, in which nothing
is answered (M1).  So the younger generations are collected ten times a second, and all objects once a minute.
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
