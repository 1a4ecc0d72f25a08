"""Publishes of messages that are to come later, several in one flush (J1)."""

import asyncio
from datetime import timedelta

from broker.core.log.messages import EncodedMessages, encode_messages
from broker.core.log.packing import encode_scheduled
from broker.core.process.database_clock import DatabaseClock
from broker.core.process.tasks import Tasks
from broker.core.publishing.publish_coalescer import PublishCoalescer
from broker.model.message import NewMessage
from broker.model.message_id import FIRST_ID_SEQ
from tests.fixtures.core import make_core
from tests.fixtures.log import Log


async def test_each_request_of_a_flush_is_told_the_ids_of_its_own_messages(log: Log) -> None:
    clock = DatabaseClock(log.database)
    await clock.synchronise()
    due_at = clock.now() + timedelta(hours=1)

    def request(*texts: str) -> EncodedMessages:
        """Those in capitals are to come later."""
        messages = [NewMessage(data=text.encode()) for text in texts]
        if not any(map(str.isupper, texts)):
            return encode_messages(messages)
        return encode_scheduled(messages, [due_at if text.isupper() else None for text in texts])

    tasks = Tasks()
    publishes = PublishCoalescer(make_core(log.database, clock, tasks))
    requests = [request("A", "B"), request("c"), request("D", "e"), request("F")]
    # All are queued before the task that flushes them has its first turn.
    appended = await asyncio.gather(
        *[
            publishes.publish(log.shard_id, each, project="projects/p", topic="projects/p/topics/t")
            for each in requests
        ]
    )
    await tasks.close()
    assert len({each.publish_time for each in appended}) == 1, "they were to be one flush"
    waiting = await log.rows("SELECT id_seq, convert_from(data, 'UTF8') FROM scheduled_messages ORDER BY id_seq")
    assert waiting == [(FIRST_ID_SEQ + n, text) for n, text in enumerate("ABDF", 1)]
    assert [appended[0].first_id_seq, appended[2].first_id_seq, appended[3].first_id_seq] == [
        FIRST_ID_SEQ + 1, FIRST_ID_SEQ + 3, FIRST_ID_SEQ + 4,
    ]  # fmt: skip
    assert [appended[0].first_seq, appended[1].first_seq, appended[2].first_seq] == [1, 1, 2]
