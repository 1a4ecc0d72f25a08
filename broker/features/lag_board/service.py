"""Lists the lag of the subscriptions of a project, in pages."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from broker.core.catalog import push_state_rows as push_states
from broker.core.catalog.subscription_rows import find_subscriptions
from broker.core.lag.lag import LagState, delivery_warnings, endpoint_verdict
from broker.core.lag.lags import read_lags
from broker.core.process.database_clock import DatabaseClock
from broker.core.publishing.publish_rights import CheckPublisher, allow_any_publisher
from broker.core.pushing.endpoint_failure import describe_late_answers, endpoint_failure_fields
from broker.db.driver.database import Database, ResourceConnection
from broker.db.driver.replica_reads import ReplicaReads
from broker.fairness.resource_turns import ResourceTurns
from broker.features.lag_board import page_rows as store
from broker.features.lag_board.list_page import AGE, COUNTS, FRESH_AT_ONCE, NAME, LagPage, Order, place_values
from broker.features.lag_board.page_rows import Board, LagRow
from broker.features.lag_board.sample import LagSample
from broker.features.lag_board.sample_rows import count_dead_letters_of
from broker.model.errors import PermissionDenied
from broker.model.names import check_project, project_of
from broker.model.page import page_token
from broker.model.push_state import PushState
from broker.model.subscription import Subscription

HungUp = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LagEntry:
    """A subscription of the list.

    `sample`: None until it is sampled.  `push_state`: the state of its endpoint (None: it has none, or has no
    endpoint).  `warnings`: sentences about what loses messages without delaying any.
    """

    subscription: Subscription
    sample: LagSample | None
    push_state: PushState | None
    warnings: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LagList:
    """A page of the list.

    `sampled_at`: no figure is older than this (None: some subscriptions have not been sampled yet).
    """

    entries: Sequence[LagEntry]
    total: int
    sampled_at: datetime | None
    next_page_token: str


class LagService:
    """The list of lags.  It only reads: it changes, locks and delivers nothing."""

    def __init__(
        self,
        database: Database,
        replica_reads: ReplicaReads,
        clock: DatabaseClock,
        turns: ResourceTurns,
        check_publisher: CheckPublisher = allow_any_publisher,
    ) -> None:
        """`turns` are those of calls that read much; a call whose figures are computed takes one."""
        self._database = database
        self._replica_reads = replica_reads
        self._clock = clock
        self._turns = turns
        self._check_publisher = check_publisher

    async def list_lag(
        self, project: str, page: LagPage, *, fresh: bool = False, hung_up: HungUp | None = None
    ) -> LagList:
        """Returns a page of the subscriptions of a project, as they were sampled.

        `fresh`: the figures of the subscriptions on the page, of which there are at most FRESH_AT_ONCE, are
        computed now, and the page is ordered by these.  A call whose caller hangs up while it waits (`hung_up()`
        completes) does not begin.

        Raises InvalidArgument for a page token of an order that is no longer kept, and for an invalid project name,
        unless the project has subscriptions; Unavailable (too many such calls).
        """
        if not fresh:
            board, rows, entries = await self._read(project, page)
        else:
            async with self._turns.of(project, hung_up=hung_up):
                page = replace(page, size=min(page.size, FRESH_AT_ONCE))
                board, rows, entries = await self._read(project, page)
                now = self._clock.now()
                entries = in_order(await self._computed(entries), page.order)
                board = replace(board, sampled_at=now)
        if not board.total:
            check_project(project)
        is_end = len(rows) <= page.size
        return LagList(
            entries=[await self._with_warnings(entry) for entry in entries],
            total=board.total,
            sampled_at=board.sampled_at,
            next_page_token="" if is_end else page_token(*place_values(page, rows[page.size - 1].next_place)),
        )

    async def _read(self, project: str, page: LagPage) -> tuple[Board, Sequence[LagRow], list[LagEntry]]:
        async with self._database.transaction() as connection:
            board = await store.read_board(connection, project=project, page=page)
            rows = await store.read_rows(connection, project=project, page=page, board=board)
            return board, rows, await _entries(connection, rows[: page.size])

    async def _computed(self, entries: Iterable[LagEntry]) -> list[LagEntry]:
        """Returns the same entries with figures computed now; the rates remain those of the last sample."""
        found = {entry.subscription.subscription_id: entry for entry in entries}
        now = self._clock.now()
        async with self._database.hot() as connection:
            dead_letters = await count_dead_letters_of(connection, subscription_ids=list(found))
        some = [entry.subscription for entry in found.values()]
        computed = []
        for lag in await read_lags(self._database, self._replica_reads, self._clock, some):
            subscription_id = lag.subscription.subscription_id
            entry = found[subscription_id]
            sample = LagSample.of(lag, dead_letters=dead_letters.get(subscription_id, 0), now=now)
            if entry.sample is not None:
                rates = entry.sample.incoming_rate, entry.sample.outgoing_rate
                sample = replace(sample, incoming_rate=rates[0], outgoing_rate=rates[1])
            computed.append(replace(entry, sample=sample))
        return computed

    async def _with_warnings(self, entry: LagEntry) -> LagEntry:
        """Brings what is known of the endpoint up to date, and adds the warnings, one of them if the subscription's
        project may not publish on the dead-letter topic.  Raises Unavailable.
        """
        subscription, now = entry.subscription, self._clock.now()
        state = None if entry.push_state is None else entry.push_state.as_of(now)
        sample = None if entry.sample is None else _up_to_date(entry.sample, state, now)
        warnings = delivery_warnings(subscription)
        if sample is not None:
            warnings += sample.warnings(now)
        deadline = subscription.ack_deadline_seconds
        late = None if state is None else state.late_answers_at(deadline)
        if late is not None:
            warnings.append(describe_late_answers(late, deadline_seconds=deadline))
        policy = subscription.dead_letter_policy
        if policy is not None:
            try:
                await self._check_publisher(project_of(subscription.name), policy.dead_letter_topic)
            except PermissionDenied as error:
                warnings.append(f"Its dead letters wait: {error.message}")
        return replace(entry, sample=sample, push_state=state, warnings=warnings)


def _up_to_date(sample: LagSample, state: PushState | None, now: datetime) -> LagSample:
    """Returns a sample with what is known of a failing endpoint by now: its next attempt may be over."""
    if state is None or sample.state != LagState.ENDPOINT_FAILING:
        return sample
    stopped = endpoint_verdict(state, now)
    if stopped is None or stopped[0] is not LagState.ENDPOINT_FAILING:
        return sample
    newer = {"verdict": stopped[1], "endpointFailure": endpoint_failure_fields(state)}
    return replace(sample, details=sample.details | newer)


async def _entries(connection: ResourceConnection, rows: Sequence[LagRow]) -> list[LagEntry]:
    """Returns the entries of those rows whose subscriptions have not been deleted in the meantime."""
    some = await find_subscriptions(connection, names=[row.name for row in rows])
    by_name = {subscription.name: subscription for subscription in some}
    pushed = [subscription.subscription_id for subscription in some if subscription.is_push]
    states = await push_states.read_push_states(connection, subscription_ids=pushed) if pushed else {}
    return [
        LagEntry(
            subscription=subscription,
            sample=row.sample,
            push_state=states.get(subscription.subscription_id),
        )
        for row in rows
        if (subscription := by_name.get(row.name)) is not None
    ]


def in_order(entries: Iterable[LagEntry], order: Order) -> list[LagEntry]:
    """Orders entries by their samples, in the same way as `write_lag_orders.sql`."""

    def rank(entry: LagEntry) -> tuple[float, float, str]:
        sample, name = entry.sample, entry.subscription.name
        if sample is None or order.field == NAME:
            return 0.0, 0.0, name
        if order.field != AGE:
            return -(getattr(sample, COUNTS[order.field]) or 0.0), 0.0, name
        oldest = sample.oldest_unacked_at
        return float("inf") if oldest is None else oldest.timestamp(), -sample.undelivered_messages, name

    ascends = order.descends if order.field != NAME else not order.descends  # what ranks first is the largest
    return sorted(entries, key=rank, reverse=not ascends)
