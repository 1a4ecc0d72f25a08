"""Publishes scheduled messages when they are due (J1)."""

import asyncio
from collections.abc import Collection
from datetime import datetime, timedelta
from functools import partial
from math import inf

from broker.core.catalog.topic_rows import find_topics_of_shards
from broker.core.context.core import Core
from broker.core.log.partitions import with_partitions
from broker.core.process.next_due import NextDue
from broker.fairness.fair_turns import FairTurns, TurnFor
from broker.features.delayed.rows import (
    MAX_DUE,
    append_due,
    delete_closed_schedules,
    find_scheduled_shards,
    move_scheduled,
)
from broker.model.errors import Aborted, Unavailable
from broker.model.message_id import message_id
from broker.model.names import project_of
from broker.model.timestamps import whole_milliseconds
from broker.observability.log import fields_of, reason
from broker.observability.metrics.families import LATENESS

_RECOVERY_INTERVAL = timedelta(seconds=1)  # how soon a process does what one that has died has left
_STEP = timedelta(milliseconds=1)  # publish times have no finer one
_PUT_OFF = timedelta(seconds=20)  # what cannot be published
_FIND_SECONDS = 0.05  # of turns, until others that have come due meanwhile are let wait for one, too
_MAX_PROJECTS = 20_000  # shards
_NOT_YET = timedelta(milliseconds=20)  # until somebody else, who is at what is due, is done with it


class DueMessages:
    """The publisher of due messages in a process.  A shard is handled by one process, while the others skip it.

    Projects take turns, a batch of a shard each: thousands of topics with due messages delay no other project's.
    """

    healthy_seconds = 30.0

    def __init__(self, core: Core, next_due: NextDue) -> None:
        self._storage = core.storage  # while it is raised nothing is published, and what is due is published late
        self._database = core.database
        self._clock = core.clock
        self._wake_ups = core.wake_ups
        self._next_due = next_due
        self._counters = core.counters
        self._states = core.states
        self._turns = FairTurns[TurnFor[int]](1, long=inf)
        self._waiting: set[int] = set()  # shards that wait for a turn
        self._projects: dict[int, str] = {}  # by shard

    async def run(self) -> None:
        """Publishes due messages until an error, which the supervisor handles."""
        while True:
            until = await self.run_once()
            await self._next_due.wait(until, self._clock.now())

    async def run_once(self) -> datetime:
        """Publish all that is due, projects in turn.  Returns when to look again."""
        more = True
        while more:
            now = whole_milliseconds(self._clock.now())
            due_ats = await self._find(now)
            more = await self._append_in_turn(now)
        if self._storage.is_raised:
            return now + _RECOVERY_INTERVAL
        return _next_check(due_ats, now)

    async def _find(self, now: datetime) -> list[datetime]:
        """Let shards with due messages wait for a turn of their project.  When the first message of each is due."""
        async with self._database.hot() as connection:
            shards = await find_scheduled_shards(connection)
        for shard in shards:
            if not shard.open:
                async with self._database.hot() as connection:
                    await delete_closed_schedules(connection, shard_id=shard.shard_id)
        if not self._storage.is_raised:
            due = {shard.shard_id for shard in shards if shard.open and shard.due_at <= now} - self._waiting
            await self._learn_projects(due - self._projects.keys())
            for shard_id in sorted(due):
                self._turns.ask(TurnFor((self._projects.get(shard_id, ""), shard_id), item=shard_id))
            self._waiting |= due
        return [shard.due_at for shard in shards if shard.open]

    async def _learn_projects(self, shard_ids: Collection[int]) -> None:
        if not shard_ids:
            return
        async with self._database.transaction() as connection:
            found = await find_topics_of_shards(connection, shard_ids=list(shard_ids))
        if len(self._projects) > _MAX_PROJECTS:
            self._projects.clear()
        self._projects |= {shard_id: project_of(topic) for shard_id, topic in found.items()}

    async def _append_in_turn(self, now: datetime) -> bool:
        """Have turns for a moment; whether there may be more that is due."""
        time, appended = asyncio.get_running_loop().time, 0
        until = time() + _FIND_SECONDS
        while (turn := self._turns.begin()) is not None:
            began = time()
            self._waiting.discard(turn.item)
            try:
                if not self._storage.is_raised:
                    appended += await self._append(turn.item, now)
            finally:
                self._turns.end(turn, time() - began)
            if time() > until:
                break
        return appended > 0 or bool(self._waiting)

    async def _append(self, shard_id: int, now: datetime) -> int:
        """Appends due messages and returns how many.

        If a message cannot be appended, it is found by halves, and put off for some seconds.
        """
        most = MAX_DUE
        while True:
            tried: list[int] = []
            try:
                append = partial(self._append_once, shard_id, now, most, tried)
                due_ats = await with_partitions(self._database, lambda: now, append)
                break
            except (Unavailable, Aborted):
                raise
            except Exception as error:
                if not tried:
                    raise
                if len(tried) == 1:
                    await self._put_off(shard_id, tried[0], now, error)
                    return 1
                most = len(tried) // 2
        if due_ats:
            self._wake_ups.published(shard_id)
            done = self._clock.now()
            late = [max(int((done - due_at).total_seconds() * 1e6), 0) for due_at in due_ats]
            LATENESS.observe_all(self._counters.process, late)
        return len(due_ats)

    async def _append_once(self, shard_id: int, now: datetime, most: int, tried: list[int]) -> list[datetime]:
        tried.clear()
        async with self._database.hot() as connection:
            return await append_due(connection, shard_id=shard_id, now=now, most=most, tried=tried)

    async def _put_off(self, shard_id: int, id_seq: int, now: datetime, error: Exception) -> None:
        """Puts a message off that cannot be published, so that the others of its shard do not wait for it."""
        async with self._database.hot() as connection:
            await move_scheduled(connection, shard_id=shard_id, id_seq=id_seq, due_at=now + _PUT_OFF)
        id_ = message_id(shard_id, id_seq)
        what = (
            f"message {id_} to come later cannot be published, and is tried again and again; "
            f"DELETE …/scheduled/{id_} of its topic cancels it"
        )
        self._states.happens(
            "messages to come later", id_, what, reason(error), error=error, fields=fields_of(message_id=id_)
        )


def _next_check(due_ats: list[datetime], now: datetime) -> datetime:
    """Returns the time of the first message, rounded up: a publish time is never before it."""
    first = min(due_ats, default=now + _RECOVERY_INTERVAL)
    if first <= now:
        return now + _NOT_YET
    return min(whole_milliseconds(first + _STEP), now + _RECOVERY_INTERVAL)
