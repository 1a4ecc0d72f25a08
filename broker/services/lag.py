"""How far behind the subscriptions of a project are, in one call (F3); an extension."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

from broker.domain.lag import Lag
from broker.domain.names import check_project
from broker.domain.page import MAX_PAGE_SIZE, Page
from broker.domain.subscription import Subscription
from broker.runtime.database_clock import DatabaseClock
from broker.runtime.lags import AT_A_TIME, read_lags
from broker.runtime.looks import Looks
from broker.runtime.resource_turns import ResourceTurns
from broker.store.driver.database import Database
from broker.store.resources import subscriptions

HungUp = Callable[[], Awaitable[None]]


class LagService:
    """Reading only: nothing is changed, locked or delivered."""

    def __init__(self, database: Database, looks: Looks, clock: DatabaseClock, turns: ResourceTurns) -> None:
        """`turns` are those of calls that look."""
        self._database = database
        self._looks = looks
        self._clock = clock
        self._turns = turns

    async def list_lag(
        self, project: str, *, page_size: int, hung_up: HungUp | None = None
    ) -> tuple[Sequence[Lag], int, datetime]:
        """The `page_size` subscriptions of a project whose oldest message is the oldest, that one first; how many
        there are in all; and when.

        One whose caller goes while it waits (`hung_up()` completes) is not begun.  Raises InvalidArgument for a
        project that cannot be, unless it has subscriptions; Unavailable (too many such calls).
        """
        async with self._turns.of(project, hung_up=hung_up):
            found = await self._subscriptions(project)
            if not found:
                check_project(project)
            lags: list[Lag] = []
            for first in range(0, len(found), AT_A_TIME):
                some = found[first : first + AT_A_TIME]
                lags = sorted(
                    [*lags, *await read_lags(self._database, self._looks, self._clock, some)], key=Lag.rank
                )[:page_size]
        return lags, len(found), self._clock.now()

    async def _subscriptions(self, project: str) -> list[Subscription]:
        found: list[Subscription] = []
        after = ""
        while True:
            async with self._database.transaction() as connection:
                page = Page(MAX_PAGE_SIZE, after)
                some = await subscriptions.list_subscriptions(connection, project=project, page=page)
            found += some[:MAX_PAGE_SIZE]
            if len(some) <= MAX_PAGE_SIZE:
                return found
            after = found[-1].name
