"""Reads the data of one message, or a range of it; an extension."""

from collections.abc import Awaitable, Callable

from broker.core.catalog import topic_rows as topics
from broker.core.resources.topic_service import topic_not_found
from broker.db.driver.database import Database
from broker.fairness.resource_turns import ResourceTurns
from broker.features.inspect.byte_range import ByteRange, MessageData
from broker.features.inspect.stored_message import read_stored
from broker.model.errors import NotFound
from broker.model.message_id import parse_message_id
from broker.model.names import project_of

HungUp = Callable[[], Awaitable[None]]


class MessageDataService:
    """Reads the data of messages.  It changes, locks and delivers nothing."""

    def __init__(self, database: Database, turns: ResourceTurns) -> None:
        """Limits concurrent reads by `turns`, which all expensive reads share."""
        self._database = database
        self._turns = turns

    async def get_data(
        self, topic_name: str, message_id: str, wanted: ByteRange, *, hung_up: HungUp | None = None
    ) -> MessageData:
        """Returns the data of a message within a range.

        Raises InvalidArgument (the id), NotFound (no topic; no such message, or it is no longer retained),
        Unavailable (too many such calls).
        """
        shard_id, id_seq = parse_message_id(message_id)
        async with self._turns.of(project_of(topic_name), hung_up=hung_up):
            async with self._database.transaction() as connection:
                topic = await topics.find_topic(connection, name=topic_name)
            if topic is None:
                raise topic_not_found(topic_name)
            if shard_id not in topic.shard_ids:
                raise _no_message(topic_name, message_id)
            where = {"shard_id": shard_id, "id_seq": id_seq}
            async with self._database.hot() as hot:
                first = wanted.first
                if first is None:  # the last bytes begin at a place that depends on the size
                    probe = await read_stored(hot, **where, max_bytes=0)
                    first = 0 if probe is None else max(probe.data_size - wanted.count, 0)
                found = await read_stored(hot, **where, offset=first, max_bytes=wanted.count)
        if found is None:
            raise _no_message(topic_name, message_id)
        return MessageData(found.data or b"", first, found.data_size)


def _no_message(topic_name: str, message_id: str) -> NotFound:
    return NotFound(
        f"There is no message {message_id} of {topic_name}, or it is not retained any more "
        f"(messageId={message_id})."
    )
