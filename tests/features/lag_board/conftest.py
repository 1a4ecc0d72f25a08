"""A lag board of the log's database, sampled at times that the test gives."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest

from broker.core.catalog import subscription_rows as subscriptions
from broker.core.process.database_clock import DatabaseClock
from broker.db.driver.database import Database
from broker.db.driver.replica_reads import ReplicaReads
from broker.fairness.resource_turns import INSPECTIONS_AT_ONCE, ResourceTurns
from broker.features.lag_board.list_page import parse_lag_page
from broker.features.lag_board.sampler import LagSampler
from broker.features.lag_board.service import LagEntry, LagList, LagService
from broker.model.subscription import Subscription
from tests.fixtures.log import Log

INTERVAL = timedelta(seconds=10)


class SetClock(DatabaseClock):
    """At the time that the test says."""

    def __init__(self, database: Database, moment: datetime) -> None:
        super().__init__(database)
        self.moment = moment

    def now(self) -> datetime:
        return self.moment


class Board:
    """The sampler and the lists of a database."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.clock = SetClock(log.database, log.start)
        self.service = LagService(
            log.database, ReplicaReads(log.database), self.clock, ResourceTurns(at_once=INSPECTIONS_AT_ONCE)
        )

    def sampler(self) -> LagSampler:
        """One of another process."""
        return LagSampler(self.log.database, self.clock, interval_seconds=INTERVAL.total_seconds())

    async def sample(self, later: timedelta | None = None) -> None:
        """A whole pass, so much after the log began, or an interval after the last one."""
        self.clock.moment = self.clock.moment + INTERVAL if later is None else self.log.start + later
        sampler = self.sampler()
        while not await sampler.run_once():
            self.clock.moment += INTERVAL

    async def page(
        self,
        *,
        order_by: str = "",
        where: str = "",
        size: int = 100,
        token: str = "",
        fresh: bool = False,
        project: str = "projects/p",
    ) -> LagList:
        page = parse_lag_page(size, token, order_by=order_by, filter_text=where)
        return await self.service.list_lag(project, page, fresh=fresh)

    async def names(self, *, order_by: str = "", where: str = "", fresh: bool = False) -> list[str]:
        return names_of((await self.page(order_by=order_by, where=where, fresh=fresh)).entries)

    async def only(self, *, fresh: bool = False) -> LagEntry:
        [entry] = (await self.page(fresh=fresh)).entries
        return entry

    async def add(self, name: str, *, project: str = "projects/p", **fields: object) -> Subscription:
        wanted = Subscription(
            name=f"{project}/subscriptions/{name}",
            topic=self.log.topic.name,
            **fields,  # type: ignore[arg-type]
        )
        async with self.log.database.transaction() as connection:
            found = await subscriptions.insert_subscription(
                connection, subscription=wanted, topic_id=self.log.topic.topic_id, now=self.clock.moment
            )
        assert found is not None
        return found

    async def delete(self, subscription: Subscription) -> None:
        async with self.log.database.transaction() as connection:
            await subscriptions.delete_subscription(connection, subscription_id=subscription.subscription_id)


def names_of(entries: Sequence[LagEntry]) -> list[str]:
    return [entry.subscription.name.rpartition("/")[2] for entry in entries]


@pytest.fixture
def board(log: Log) -> Board:
    return Board(log)
