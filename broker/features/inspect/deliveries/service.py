"""Reports the deliveries of a message for each subscription of its topic (F3); an extension."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from broker.core.acking.delivery_recorder import DeliveryRecords
from broker.core.backlog.delivery_state import DeliveryState
from broker.core.catalog import push_state_rows as push_states
from broker.core.catalog import subscription_rows as subscriptions
from broker.core.catalog import topic_rows as topics
from broker.core.filtering.body import MAX_BODY_BYTES
from broker.core.filtering.comparing import most_compared
from broker.core.lag.lag import LagState, endpoint_verdict
from broker.core.log.logged_message import LoggedMessage
from broker.core.log.message_ids import sequence_of
from broker.core.log.partitions import Partition, list_partitions
from broker.core.process.database_clock import DatabaseClock
from broker.core.records.journal_of_message import read_entries, read_settlement
from broker.core.resources.permitted import AskPermission, is_permitted
from broker.core.resources.subscription_service import existing_subscription
from broker.core.resources.topic_service import topic_not_found
from broker.db.driver.database import Database
from broker.db.driver.hot_connection import HotConnection
from broker.fairness.resource_turns import ResourceTurns
from broker.features.delayed.delay import ScheduledMessage
from broker.features.inspect.deliveries.report import (
    MAX_COUNTED,
    DeliveryReport,
    report_of,
    report_of_gone,
    report_of_retracted,
    report_until_due,
    settled_by,
)
from broker.features.inspect.deliveries.rows import count_before, find_gap, read_deliveries
from broker.features.inspect.stored_message import read_stored
from broker.features.retraction.retraction import Retraction
from broker.features.retraction.rows import read_retractions
from broker.model.errors import BrokerError, NotFound
from broker.model.journal import Entry, settlement
from broker.model.message_id import parse_message_id
from broker.model.names import project_of
from broker.model.page import Page, cut_page
from broker.model.push_state import PushState
from broker.model.subscription import Subscription
from broker.model.topic import Topic

HungUp = Callable[[], Awaitable[None]]
_TO_COME = frozenset(
    {DeliveryState.WAITING, DeliveryState.OUTSTANDING, DeliveryState.RETRYING, DeliveryState.BLOCKED}
)


@dataclass(frozen=True, slots=True)
class GoneMessage:
    """A message that is no longer retained.  The journal may still have records of it."""

    shard_id: int
    seq: int


class DroppedMessage:
    """A message that a transform of the topic dropped: it has an id and was never stored."""


Found = LoggedMessage | ScheduledMessage | Retraction | GoneMessage | DroppedMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryReports:
    """A message of a topic and its reports for the subscriptions of a page.

    The message may be a delayed one that has yet to be published.
    """

    topic: str
    message_id: str
    message: Found
    reports: Sequence[tuple[Subscription, DeliveryReport]]
    next_page_token: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """The report of a message for one subscription and its journal entries, oldest first.

    `report` is None if the log does not have the message and the journal does not say how it was settled.
    """

    subscription: Subscription
    message_id: str
    report: DeliveryReport | None
    entries: Sequence[Entry]


class DeliveryReportService:
    """Reports deliveries.  It changes, locks and delivers nothing but records of this process that are yet to be
    written.
    """

    def __init__(
        self, database: Database, clock: DatabaseClock, turns: ResourceTurns, records: DeliveryRecords
    ) -> None:
        """Limits concurrent reports by `turns`, which all expensive reads share; `records` are those of this
        process.
        """
        self._records = records
        self._database = database
        self._clock = clock
        self._turns = turns

    async def topic_of(self, project: str, message_id: str) -> str:
        """Returns the name of a message's topic, which must be in the project.  Raises
        InvalidArgument, NotFound.
        """
        shard_id, _ = parse_message_id(message_id)
        async with self._database.transaction() as connection:
            name = await topics.find_topic_of_shard(connection, shard_id=shard_id)
        if name is None or project_of(name) != project:
            raise _no_message(message_id, f"in {project}")
        return name

    async def get_message(
        self,
        topic_name: str,
        message_id: str,
        page: Page,
        *,
        preview_bytes: int,
        may_see: AskPermission,
        hung_up: HungUp | None = None,
    ) -> DeliveryReports:
        """Returns a message, with the first `preview_bytes` of its data, and its reports in the order of
        subscription names.

        Leaves out subscriptions for which `may_see` raises PermissionDenied.  Raises InvalidArgument, NotFound (no
        topic; no such message, or it is no longer retained), Unavailable.
        """
        shard_id, id_seq = parse_message_id(message_id)
        async with self._turns.of(project_of(topic_name), hung_up=hung_up):
            await self._write_records()
            topic, some, token = await self._subscriptions(topic_name, page)
            if shard_id not in topic.shard_ids:
                raise _no_message(message_id, f"of {topic_name}, or it is not retained any more")
            async with self._database.hot() as hot:
                found = await _read(hot, shard_id, id_seq, preview_bytes)
                message = found or await self._not_stored(hot, shard_id, id_seq)
            seen = [subscription for subscription in some if await is_permitted(may_see, subscription.name)]
            reports = await self._reports(topic_name, message, seen)
            if isinstance(message, GoneMessage) and not reports:
                raise _no_message(message_id, f"of {topic_name}, or it is not retained any more")
            return DeliveryReports(
                topic=topic_name,
                message_id=message_id,
                message=_cut(message, preview_bytes),
                reports=reports,
                next_page_token=token,
            )

    async def get_timeline(
        self, subscription_name: str, message_id: str, *, hung_up: HungUp | None = None
    ) -> Timeline:
        """Returns the report of a message for one subscription, with its journal entries.

        Raises InvalidArgument, NotFound (no subscription; a message that is neither retained nor in the journal),
        Unavailable.
        """
        shard_id, id_seq = parse_message_id(message_id)
        async with self._turns.of(project_of(subscription_name), hung_up=hung_up):
            await self._write_records()
            async with self._database.transaction() as connection:
                subscription = await existing_subscription(connection, subscription_name)
            entries: Sequence[Entry] = ()
            message = None
            if shard_id in subscription.shard_ids:
                async with self._database.hot() as hot:
                    message = await _read(hot, shard_id, id_seq)
                    seq = await sequence_of(hot, shard_id=shard_id, id_seq=id_seq)
                    if seq is not None:
                        wanted = {"subscription_id": subscription.subscription_id, "shard_id": shard_id, "seq": seq}
                        entries = await read_entries(hot, **wanted)
            reports = [] if message is None else await self._reports(subscription.topic, message, [subscription])
            if not reports and not entries:
                raise _no_message(message_id, f"of {subscription_name}, or it is not retained any more")
            return Timeline(
                subscription, message_id, reports[0][1] if reports else _report_of_gone(entries), entries
            )

    async def _subscriptions(self, topic_name: str, page: Page) -> tuple[Topic, Sequence[Subscription], str]:
        async with self._database.transaction() as connection:
            topic = await topics.find_topic(connection, name=topic_name)
            if topic is None:
                raise topic_not_found(topic_name)
            names = await topics.list_topic_subscriptions(connection, topic_id=topic.topic_id, page=page)
            given, token = cut_page(names, page.size, lambda name: name)
            found = await subscriptions.find_subscriptions(connection, names=given)
        return topic, sorted(found, key=lambda subscription: subscription.name), token

    async def _reports(
        self, topic_name: str, message: Found, seen: Sequence[Subscription]
    ) -> list[tuple[Subscription, DeliveryReport]]:
        if isinstance(message, DroppedMessage):
            return []
        if isinstance(message, GoneMessage):
            return await self._reports_of_gone(message, seen)
        if isinstance(message, Retraction):
            return await self._reports_of_retracted(message, seen)
        if isinstance(message, ScheduledMessage):
            report = report_until_due(topic_name, message)
            return [(subscription, report) for subscription in seen]
        return await self._reports_in_log(message, seen)

    async def _write_records(self) -> None:
        """Writes the pending records of this process.  Other processes write theirs within a second."""
        with suppress(BrokerError):  # the verdict says if a record is missing
            await self._records.flush()

    async def _not_stored(self, hot: HotConnection, shard_id: int, id_seq: int) -> GoneMessage | DroppedMessage:
        """Decides whether a message that the log does not have was dropped by a transform or is no
        longer retained.
        """
        seq = await sequence_of(hot, shard_id=shard_id, id_seq=id_seq)
        gap = None if seq is None else await find_gap(hot, shard_id=shard_id, seq=seq)
        if gap is not None:
            async with self._database.connection() as connection:
                partitions = await list_partitions(connection)
            if _are_all_there(partitions, *gap):
                return DroppedMessage()
        return GoneMessage(shard_id, id_seq if seq is None else seq)

    async def _reports_of_gone(
        self, message: GoneMessage, seen: Sequence[Subscription]
    ) -> list[tuple[Subscription, DeliveryReport]]:
        reports = []
        async with self._database.hot() as hot:
            for subscription in seen:
                where = {"subscription_id": subscription.subscription_id, "shard_id": message.shard_id}
                entry = await read_settlement(hot, **where, seq=message.seq)
                if entry is not None:
                    reports.append((subscription, report_of_gone(entry)))
        return reports

    async def _reports_of_retracted(
        self, retraction: Retraction, seen: Sequence[Subscription]
    ) -> list[tuple[Subscription, DeliveryReport]]:
        now = self._clock.now()
        if retraction.seq is None:
            return [(subscription, report_of_retracted(retraction, None, now)) for subscription in seen]
        shard_id, seq = retraction.shard_id, retraction.seq
        message = LoggedMessage(shard_id, seq, retraction.publish_time, None, "{}", b"")
        reports = []
        async with self._database.hot() as hot:
            for delivery in await read_deliveries(hot, message=message, subscriptions=seen):
                report = report_of_retracted(retraction, delivery, now)
                if report.state in (DeliveryState.SETTLED, DeliveryState.RETRACTED):
                    subscription_id = delivery.subscription.subscription_id
                    wanted = {"subscription_id": subscription_id, "shard_id": shard_id, "seq": seq}
                    entry = await read_settlement(hot, **wanted)
                    report = settled_by(report, entry)
                reports.append((delivery.subscription, report))
        return reports

    async def _reports_in_log(
        self, message: LoggedMessage, seen: Sequence[Subscription]
    ) -> list[tuple[Subscription, DeliveryReport]]:
        now = self._clock.now()
        pushed = [s.subscription_id for s in seen if s.is_push]
        async with self._database.transaction() as connection:
            states = await push_states.read_push_states(connection, subscription_ids=pushed) if pushed else {}
        reports = []
        async with self._database.hot() as hot:
            for delivery in await read_deliveries(hot, message=message, subscriptions=seen):
                report = report_of(delivery, now)
                if report.state is DeliveryState.SETTLED:
                    settled = await read_settlement(
                        hot,
                        subscription_id=delivery.subscription.subscription_id,
                        shard_id=delivery.shard_id,
                        seq=delivery.facts.seq,
                    )
                    report = settled_by(report, settled)
                if report.state is DeliveryState.WAITING and delivery.facts.row is None:
                    before, more = await count_before(hot, delivery, now=now)
                    most = most_compared(MAX_COUNTED, delivery.subscription.body_path)
                    report = replace(
                        report, verdict=f"{report.verdict} {_preceding(before, most if more else None)}"
                    )
                report = _with_endpoint(report, states.get(delivery.subscription.subscription_id), now)
                reports.append((delivery.subscription, report))
        return reports


async def _read(
    hot: HotConnection, shard_id: int, id_seq: int, preview_bytes: int = 0
) -> LoggedMessage | ScheduledMessage | Retraction | None:
    """Reads as much of a message's data as is shown, and as much as filters read."""
    most = max(preview_bytes, MAX_BODY_BYTES)
    found = await read_stored(hot, shard_id=shard_id, id_seq=id_seq, max_bytes=most)
    if found is not None:
        return found
    seq = await sequence_of(hot, shard_id=shard_id, id_seq=id_seq)
    retractions = await read_retractions(hot, {(shard_id, id_seq): seq})
    return retractions.get((shard_id, id_seq))


def _cut(message: Found, preview_bytes: int) -> Found:
    """Returns a message with the first `preview_bytes` of its data."""
    if isinstance(message, LoggedMessage):
        return message._replace(data=message.data[:preview_bytes])
    if isinstance(message, ScheduledMessage):
        return replace(message, data=(message.data or b"")[:preview_bytes])
    return message


def _with_endpoint(report: DeliveryReport, state: PushState | None, now: datetime) -> DeliveryReport:
    """Adds the reason why pushes to the endpoint are held, if a report is about a message that has yet to be
    delivered.
    """
    stopped = endpoint_verdict(state, now)
    if state is None or stopped is None or report.state not in _TO_COME:
        return report
    delivery_state, verdict = stopped
    endpoint = state.as_of(now) if delivery_state is LagState.ENDPOINT_FAILING else None
    return replace(report, verdict=f"{report.verdict} {verdict}", endpoint=endpoint)


def _preceding(count: int, at_least: int | None) -> str:
    """Returns a sentence with the number of messages ahead of one.  `at_least`: the number that was counted before
    the count ended (None: all were counted).
    """
    if at_least is not None:
        return f"More than {at_least:,} undelivered messages of its shard precede it."
    if not count:
        return "It is the next undelivered message of its shard."
    return (
        f"{count:,} undelivered message{' of its shard precedes' if count == 1 else 's of its shard precede'} it."
    )


def _report_of_gone(entries: Sequence[Entry]) -> DeliveryReport | None:
    entry = settlement(entries)
    return None if entry is None else report_of_gone(entry)


def _are_all_there(partitions: Sequence[Partition], low: datetime, high: datetime) -> bool:
    """Returns whether the log still has all partitions between two times."""
    for partition in partitions:
        if partition.start <= low < partition.end:
            if high < partition.end:
                return True
            low = partition.end
    return False


def _no_message(message_id: str, where: str) -> NotFound:
    return NotFound(f"There is no message {message_id} {where} (messageId={message_id}).")
