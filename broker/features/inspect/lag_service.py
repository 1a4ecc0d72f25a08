"""How far behind the subscriptions of a project are, in one call (F3); an extension."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from broker.core.catalog import subscription_rows as subscriptions
from broker.core.lag.lag import Lag
from broker.core.lag.lag_rows import find_lagging
from broker.core.lag.lags import AT_A_TIME, read_lags
from broker.core.process.database_clock import DatabaseClock
from broker.core.publishing.publish_rights import CheckPublisher, allow_any_publisher
from broker.db.driver.database import Database
from broker.db.driver.replica_reads import ReplicaReads
from broker.fairness.resource_turns import ResourceTurns
from broker.model.errors import PermissionDenied
from broker.model.names import check_project, project_of

HungUp = Callable[[], Awaitable[None]]


class LagService:
    """Reading only: nothing is changed, locked or delivered."""

    def __init__(
        self,
        database: Database,
        replica_reads: ReplicaReads,
        clock: DatabaseClock,
        turns: ResourceTurns,
        check_publisher: CheckPublisher = allow_any_publisher,
    ) -> None:
        """`turns` are those of calls that inspect."""
        self._database = database
        self._replica_reads = replica_reads
        self._clock = clock
        self._turns = turns
        self._check_publisher = check_publisher

    async def list_lag(
        self, project: str, *, page_size: int, hung_up: HungUp | None = None
    ) -> tuple[Sequence[Lag], int, datetime]:
        """The `page_size` subscriptions of a project whose oldest message is the oldest, that one first; how many
        there are in all; and when.

        One whose caller goes while it waits (`hung_up()` completes) is not begun.  Raises InvalidArgument for a
        project that cannot be, unless it has subscriptions; Unavailable (too many such calls).
        """
        async with self._turns.of(project, hung_up=hung_up):
            found = await self._find(project)
            if not found:
                check_project(project)
            lags = await self._oldest([name for name, may_lag in found if may_lag], page_size)
            if sum(lag.oldest is not None for lag in lags) < page_size:
                at_rest = [name for name, may_lag in found if not may_lag][:page_size]
                lags = sorted([*lags, *await self._oldest(at_rest, page_size)], key=Lag.rank)[:page_size]
        return [await self._with_denial(lag) for lag in lags], len(found), self._clock.now()

    async def _with_denial(self, lag: Lag) -> Lag:
        """Warns of a dead-letter topic on which the subscription's project may not publish.  Raises Unavailable."""
        policy = lag.subscription.dead_letter_policy
        if policy is None:
            return lag
        try:
            await self._check_publisher(project_of(lag.subscription.name), policy.dead_letter_topic)
        except PermissionDenied as error:
            return replace(lag, warnings=[*lag.warnings, f"Its dead letters wait: {error.message}"])
        return lag

    async def _find(self, project: str) -> list[tuple[str, bool]]:
        """The names of a project's subscriptions, and whether each may have a backlog: of most there is none."""
        found: list[tuple[str, bool]] = []
        after, before = f"{project}/subscriptions/", f"{project}/subscriptions0"
        while some := await self._replica_reads.read(partial(find_lagging, after=after, before=before)):
            found += some
            after = some[-1][0]
        return found

    async def _oldest(self, names: Sequence[str], size: int) -> list[Lag]:
        lags: list[Lag] = []
        for first in range(0, len(names), AT_A_TIME):
            async with self._database.transaction() as connection:
                some = await subscriptions.find_subscriptions(connection, names=names[first : first + AT_A_TIME])
            read = await read_lags(self._database, self._replica_reads, self._clock, some)
            lags = sorted([*lags, *read], key=Lag.rank)[:size]
        return lags
