"""Lists, moves and cancels the scheduled messages of a topic; extensions (J1)."""

from collections.abc import Sequence
from datetime import datetime

from broker.core.catalog import topic_rows as topics
from broker.core.log.message_ids import sequence_of
from broker.core.process.database_clock import DatabaseClock
from broker.core.process.next_due import NextDue
from broker.core.resources.topic_service import topic_not_found
from broker.db.driver.database import Database
from broker.features.delayed.delay import ScheduledMessage, check_due
from broker.features.delayed.listed_rows import list_scheduled, read_scheduled
from broker.features.delayed.page import SchedulePage
from broker.features.delayed.rows import cancel_scheduled, move_scheduled
from broker.model.errors import FailedPrecondition, NotFound
from broker.model.message_id import FIRST_ID_SEQ, parse_message_id
from broker.model.page import cut_page
from broker.model.preview import UNGUARDED, Preview, Safeguards
from broker.model.timestamps import format_timestamp
from broker.model.topic import Topic


class ScheduleService:
    """The scheduled messages of topics.  Those of topics where delays were switched off are still published."""

    def __init__(self, database: Database, clock: DatabaseClock, next_due: NextDue) -> None:
        self._database = database
        self._clock = clock
        self._next_due = next_due

    async def list_scheduled(self, topic_name: str, page: SchedulePage) -> tuple[Sequence[ScheduledMessage], str]:
        """A page, the first due first, and the token of the next page.  Raises NotFound."""
        topic = await self._topic(topic_name)
        async with self._database.hot() as hot:
            found = await list_scheduled(hot, shard_ids=topic.shard_ids, page=page)
        return cut_page(found, page.size, lambda message: (message.due_at, message.id_seq, message.shard_id))

    async def get_scheduled(self, topic_name: str, message_id: str) -> ScheduledMessage:
        """Raises InvalidArgument, NotFound, FailedPrecondition (it was published)."""
        shard_id, id_seq = await self._located(topic_name, message_id)
        async with self._database.hot() as hot:
            found = await read_scheduled(hot, shard_id=shard_id, id_seq=id_seq)
        if found is None:
            raise await self._not_waiting(topic_name, message_id)
        return found

    async def move_scheduled(self, topic_name: str, message_id: str, due_at: datetime) -> ScheduledMessage:
        """Let it come at another time; one that has passed is now.

        Raises InvalidArgument (the time), NotFound, FailedPrecondition (it was published).
        """
        shard_id, id_seq = await self._located(topic_name, message_id)
        check_due(due_at, self._clock.now(), "deliverTime", format_timestamp(due_at))
        async with self._database.hot() as hot:
            moved = await move_scheduled(hot, shard_id=shard_id, id_seq=id_seq, due_at=due_at)
            found = await read_scheduled(hot, shard_id=shard_id, id_seq=id_seq) if moved else None
        if found is None:
            raise await self._not_waiting(topic_name, message_id)
        self._next_due.notify(due_at)
        return found

    async def cancel_scheduled(
        self, topic_name: str, message_id: str, *, by: str = "", safeguards: Safeguards = UNGUARDED
    ) -> Preview | None:
        """Cancels a scheduled message, so that it is never delivered after the answer.  `by`: who cancels it.

        Returns what would be lost if that is all that was asked for.  Raises InvalidArgument, NotFound,
        FailedPrecondition (it was published), NotAsExpected.
        """
        if safeguards.asked:  # one that was accepted is there until it comes or is cancelled
            message = await self.get_scheduled(topic_name, message_id)
            safeguards.check_existed(message.accepted_at, f"The message {message_id}")
            losses = {"scheduledMessages": 1}
            counted = Preview(count=1, unit="message", time=self._clock.now(), losses=losses)
            if preview := safeguards.previewed(counted):
                return preview
        shard_id, id_seq = await self._located(topic_name, message_id)
        async with self._database.hot() as hot:
            now = self._clock.now()
            cancelled = await cancel_scheduled(hot, shard_id=shard_id, id_seq=id_seq, now=now, by=by)
        if not cancelled:
            raise await self._not_waiting(topic_name, message_id)
        return None

    async def _topic(self, name: str) -> Topic:
        async with self._database.transaction() as connection:
            topic = await topics.find_topic(connection, name=name)
        if topic is None:
            raise topic_not_found(name)
        return topic

    async def _located(self, topic_name: str, message_id: str) -> tuple[int, int]:
        shard_id, id_seq = parse_message_id(message_id)
        topic = await self._topic(topic_name)
        if shard_id not in topic.shard_ids or id_seq <= FIRST_ID_SEQ:
            raise _unknown(topic_name, message_id)
        return shard_id, id_seq

    async def _not_waiting(self, topic_name: str, message_id: str) -> NotFound | FailedPrecondition:
        """Returns the error for a message that is not scheduled any more.

        The query is a statement of its own: after a wait for the message's row it sees the outcome.
        """
        shard_id, id_seq = parse_message_id(message_id)
        async with self._database.hot() as hot:
            seq = await sequence_of(hot, shard_id=shard_id, id_seq=id_seq)
        if seq is None:
            return _unknown(topic_name, message_id)
        return FailedPrecondition(
            f"Message {message_id} was published: its time has come (messageId={message_id})."
        )


def _unknown(topic_name: str, message_id: str) -> NotFound:
    return NotFound(f"No message {message_id} of {topic_name} waits for its time (messageId={message_id}).")
