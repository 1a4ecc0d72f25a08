"""How messages stand with a subscription, as each part of the broker that reports it does."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import starmap
from typing import Any

from broker.core.backlog.delivery_state import DeliveryState
from broker.core.backlog.locked_backlog import LockedBacklog, lock_backlogs, lock_delivery_rows
from broker.core.backlog.seeking import cursors
from broker.core.backlog.seeking.position import Position
from broker.core.backlog.seeking.preview import Preview
from broker.core.backlog.seeking.previews import compare, read_holding
from broker.core.lag.lag import ShardLag
from broker.core.lag.lag_rows import read_lag
from broker.core.log.log_walk import LogWalk
from broker.core.log.logged_message import LoggedMessage, read_message
from broker.core.process.database_clock import DatabaseClock
from broker.core.pulling.flow_control import FlowControl
from broker.core.pulling.outstanding import Outstanding
from broker.core.pulling.reader_rows import count_still_out
from broker.core.records.journal_of_message import read_settlement
from broker.features.dead_letters.chosen import Chosen
from broker.features.dead_letters.dead_letter_groups import count_chosen
from broker.features.inspect.backlog_page import BacklogPage
from broker.features.inspect.backlog_rows import Asked, list_messages
from broker.features.inspect.deliveries.report import report_of, report_of_retracted, settled_by
from broker.features.inspect.deliveries.rows import read_deliveries
from broker.features.purge.rows import count_matching
from broker.features.retraction.rows import read_retractions
from broker.model.delivery import Delivery
from broker.model.subscription import Subscription
from broker.model.timestamps import END_OF_TIME, EVER
from tests.fixtures.log import Log


class FixedClock(DatabaseClock):
    """Stands at the time that a test gives."""

    moment: datetime

    def now(self) -> datetime:
        return self.moment


class _Undone(Exception):
    pass


@dataclass
class Reports:
    """What is reported of one subscription in its shard."""

    log: Log
    subscription: Subscription
    now: datetime

    @property
    def _where(self) -> dict[str, int]:
        return {"shard_id": self.log.shard_id, "subscription_id": self.subscription.subscription_id}

    async def of_message(self, seq: int) -> tuple[str, int | None]:
        """Returns the state that `messages/{id}` reports, and the attempt number if it reports one."""
        shard_id = self.log.shard_id
        async with self.log.session() as session:
            found = await read_message(session, shard_id=shard_id, id_seq=seq)
            retracted = None
            if found is None:
                retracted = (await read_retractions(session, {(shard_id, seq): seq}))[shard_id, seq]
                found = LoggedMessage(shard_id, seq, retracted.publish_time, None, "{}", b"")
            [delivery] = await read_deliveries(session, message=found, subscriptions=[self.subscription])
            report = (
                report_of(delivery, self.now)
                if retracted is None
                else report_of_retracted(retracted, delivery, self.now)
            )
            if report.state in (DeliveryState.SETTLED, DeliveryState.RETRACTED):
                report = settled_by(report, await read_settlement(session, **self._where, seq=seq))
        return report.state, report.attempt_number

    async def listed(self) -> dict[int, tuple[str, int]]:
        """Returns state and attempt number of each message in the list of the backlog."""
        asked = Asked(
            subscription_id=self.subscription.subscription_id,
            shard_ids=[self.log.shard_id],
            ordered=self.subscription.enable_message_ordering,
            retained_since=self.now - self.subscription.retention,
            filter_path=None,
            log_path=self.subscription.filter_path,
            log_body_path=self.subscription.body_path,
            page=BacklogPage(1_000),
            now=self.now,
        )
        async with self.log.session() as session:
            found = (await list_messages(session, asked)).found
        assert len({message.seq for message in found}) == len(found)
        return {message.seq: (str(message.state), message.attempt_number) for message in found}

    async def lag(self) -> ShardLag:
        async with self.log.session() as session:
            [lag] = await read_lag(session, subscriptions=[self.subscription], now=self.now)
        return lag

    async def position(self) -> Position:
        async with self.log.database.connection() as connection:
            [position] = await cursors.read_positions(
                connection,
                subscription_id=self.subscription.subscription_id,
                retained_since=self.now - self.subscription.retention,
                filter_path=self.subscription.filter_path,
                body_path=self.subscription.body_path,
            )
        return position

    async def held(self) -> tuple[LockedBacklog, list[Any]]:
        """Returns the backlog as operations read it, and the messages that it was asked about: all of the log."""
        async with self.log.session() as session:
            rows = await self.log.rows(
                "SELECT shard_id, seq, publish_time, ordering_key, expires_at FROM messages"
                f" WHERE shard_id = {self.log.shard_id} ORDER BY seq"
            )
            messages = list(starmap(_Logged, rows))
            own = (self.subscription.subscription_id, [self.log.shard_id])
            backlogs = await lock_backlogs(
                session, shard_ids=[], own=own, consumable=(), now=self.now, locked=False
            )
            [backlog] = backlogs[self.log.shard_id]
            await lock_delivery_rows(session, [backlog], messages, locked=False)
            await backlog.ask_filter(session, messages)
        return backlog, messages

    async def purgeable(self) -> int:
        """Returns how many messages a purge of everything says that it would drop."""
        owner, shard_id = self.subscription.subscription_id, self.log.shard_id
        starts, ends = {shard_id: self.log.start}, {shard_id: 2**62}
        walk = LogWalk(
            subscription_id=owner,
            starts=starts,
            ends=ends,
            until=END_OF_TIME,
            filter_path=self.subscription.filter_path,
            body_path=self.subscription.body_path,
        )
        after = walk.next_position({})
        assert after is not None
        async with self.log.session() as session:
            return len((await count_matching(session, walk, after, 1_000, now=self.now)).outcomes)

    async def still_out(self, deliveries: list[Delivery]) -> tuple[dict[tuple[int, int], set[int]], int]:
        """Returns what is outstanding for flow control (ordinals by attempt) and for readers (a count)."""
        names = [self.log.name(delivery) for delivery in deliveries]
        clock = FixedClock(self.log.database)
        clock.moment = self.now
        outstanding = Outstanding(self.log.database, clock)
        window = outstanding.open(self.subscription.subscription_id, "", FlowControl(max_messages=900))
        outstanding.handed_out(window, deliveries)
        await outstanding.check(window)
        async with self.log.session() as session:
            counts = await count_still_out(session, attempts=names, now=self.now)
        return {(self.log.shard_id, name.attempt_id): set(sizes) for name, sizes in window.sizes.items()}, sum(
            counts
        )

    async def preview_of_seek_to_end(self) -> Preview:
        """Returns what a seek behind all messages would change."""
        previews: list[Preview] = []
        time = self.now + timedelta(days=1)
        try:
            async with self.log.database.transaction() as connection:
                seek = cursors.ShardSeek(
                    **self._where,
                    ordered=self.subscription.enable_message_ordering,
                    now=self.now,
                    first_attempt_id=self.log.attempt_ids.take_parts(1, now=self.now)[0],
                    retained_since=self.now - self.subscription.retention,
                    filter_path=self.subscription.filter_path,
                    body_path=self.subscription.body_path,
                )
                before = await read_holding(connection, seek)
                await cursors.seek_to_time(connection, seek, time=time, replay_since=None)
                after = await read_holding(connection, seek)
                assert before is not None
                assert after is not None
                previews.append(await compare(connection, seek, before, after, time=time))
                raise _Undone
        except _Undone:
            return previews[0]

    async def dead_letters(self, consumable: int) -> int:
        """Returns how many messages the preview of a redrive counts."""
        async with self.log.session() as session:
            chosen = Chosen(subscription_id=self.subscription.subscription_id, since=EVER, until=END_OF_TIME)
            count = await count_chosen(
                session, chosen, shard_ids=[self.log.shard_id], consumable={consumable}, now=self.now
            )
        return count.messages


@dataclass(frozen=True)
class _Logged:
    shard_id: int
    seq: int
    publish_time: datetime
    ordering_key: str | None
    expires_at: datetime | None
