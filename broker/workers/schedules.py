"""Ticks the schedules whose time has come (J2)."""

import asyncio
from datetime import datetime, timedelta

from broker.runtime.database_clock import DatabaseClock
from broker.runtime.next_due import NextDue
from broker.runtime.schedule_ticker import ScheduleTicker

_LOOK = timedelta(seconds=1)  # how soon a process does what another one has made, or left
_NOT_YET = timedelta(milliseconds=20)  # until somebody else, who is at what is due, is done with it


class ScheduleWorker:
    """Every process has one; of a schedule one of them takes what is due, while the others pass it by."""

    healthy_seconds = 30.0

    def __init__(self, clock: DatabaseClock, ticker: ScheduleTicker, next_tick: NextDue) -> None:
        self._clock = clock
        self._ticker = ticker
        self._next_tick = next_tick

    async def run(self) -> None:
        """Until an error, which is the supervisor's."""
        while True:
            until = await self.run_once()
            await self._next_tick.wait(until, self._clock.now())

    async def run_once(self) -> datetime:
        """Tick all that is due.  Returns when to look again."""
        first, now = await self._ticker.next_at(), self._clock.now()
        if first is not None and first <= now:
            ticked = True
            while ticked:
                ticked = await self._ticker.tick_due() is not None
                await asyncio.sleep(0)  # others of this process have had no turn meanwhile
            first, now = await self._ticker.next_at(), self._clock.now()
        if first is None or first > now + _LOOK:
            return now + _LOOK
        return max(first, now + _NOT_YET) if first <= now else first
