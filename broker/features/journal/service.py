"""Follows the journal of a subscription as entries are written (F3); an extension."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from broker.core.process.tails import Tail, Tails
from broker.core.resources.subscription_service import existing_subscription, subscription_not_found
from broker.db.driver.database import Database
from broker.fairness.resource_turns import ResourceTurns
from broker.features.journal.journal_tail import Horizon, Written
from broker.features.journal.rows import MAX_ROWS, find_written_since, list_written, read_ends
from broker.model.errors import FailedPrecondition
from broker.model.names import project_of
from broker.model.subscription import Subscription

WAIT_SECONDS = 15.0  # for what is next; then whoever reads is told that the tail is alive
PAUSE_SECONDS = 0.25  # between two checks: a tail costs the database the same however much happens
_EVER = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class _Reader:
    """The progress of one tail, which has read the journal up to number `after`."""

    tail: Tail
    subscription: Subscription
    since: datetime
    after: int
    horizon: Horizon = field(default_factory=Horizon)


class JournalTailService:
    """The tails of journals.  They only read: they change, lock and deliver nothing."""

    def __init__(self, database: Database, turns: ResourceTurns, tails: Tails) -> None:
        """`turns` are those of calls that inspect."""
        self._database = database
        self._turns = turns
        self._tails = tails

    @asynccontextmanager
    async def tail(
        self, name: str, *, since: datetime | None = None, after: int | None = None
    ) -> AsyncIterator[AsyncIterator[Sequence[Written]]]:
        """Yields the entries after a number, or since a time; with neither, the entries written from now on.

        Yields something at least every WAIT_SECONDS, which may be empty.  Ends when the broker stops.  Raises
        NotFound (also when the subscription is deleted meanwhile), FailedPrecondition (it has no journal, or has
        none any more), ResourceExhausted (too many tails), Unavailable.
        """
        subscription = await self._journaled(name)
        tail = self._tails.open(project_of(name), (), name=name)
        try:
            subscription_id = subscription.subscription_id
            async with self._turns.of(tail.project, is_short=True), self._database.hot() as connection:
                end = (await read_ends(connection)).number
                if after is None and since is not None:
                    after = await find_written_since(connection, subscription_id=subscription_id, since=since)
            # A number beyond the end is of another database, or of this one before a backup was restored.
            after = end if after is None else min(after, end)
            yield self._follow(_Reader(tail, subscription, since or _EVER, after))
        finally:
            self._tails.close(tail)

    async def _follow(self, reader: _Reader) -> AsyncIterator[Sequence[Written]]:
        loop, tail = asyncio.get_running_loop(), reader.tail
        reported_at = checked_at = loop.time()
        more = False
        while not tail.stopping:
            if not more:
                changed = await tail.wait(PAUSE_SECONDS)
                if changed or loop.time() - checked_at >= WAIT_SECONDS:
                    await self._check(reader)
                    checked_at = loop.time()
            if tail.stopping:
                return
            written = await self._read(reader)
            more = len(written) == MAX_ROWS
            if written or loop.time() - reported_at >= WAIT_SECONDS:
                yield written
                reported_at = loop.time()

    async def _read(self, reader: _Reader) -> Sequence[Written]:
        """Returns the next entries, up to the number before which no entry can appear any more."""
        horizon = reader.horizon
        async with self._turns.of(reader.tail.project, is_short=True), self._database.hot() as connection:
            horizon.observe(await read_ends(connection), asyncio.get_running_loop().time())
            if horizon.number <= reader.after:
                return ()
            written = await list_written(
                connection,
                subscription_id=reader.subscription.subscription_id,
                after=reader.after,
                until=horizon.number,
                since=reader.since,
            )
        reader.after = written[-1].number if len(written) == MAX_ROWS else horizon.number
        return written

    async def _check(self, reader: _Reader) -> None:
        found = await self._journaled(reader.subscription.name)
        if found.subscription_id != reader.subscription.subscription_id:
            raise subscription_not_found(found.name)

    async def _journaled(self, name: str) -> Subscription:
        async with self._database.transaction() as connection:
            subscription = await existing_subscription(connection, name)
        if subscription.journal is None:
            raise FailedPrecondition(
                "A tail tells what is written into the subscription's journal, and it has none: patch "
                f'extensions.journal.mode to "ALL" or "FAILURES" first (subscription={name}).'
            )
        return subscription
