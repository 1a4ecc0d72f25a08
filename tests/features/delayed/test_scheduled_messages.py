"""Messages that are to come later, in the database: waiting, then in the log, in one transaction (J1)."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from broker.core.catalog import topic_rows as topics
from broker.core.log.message_ids import sequence_of
from broker.core.log.messages import Appended, append_messages, encode_messages
from broker.core.log.packing import encode_scheduled
from broker.features.delayed.rows import (
    MAX_DUE,
    append_due,
    cancel_scheduled,
    delete_closed_schedules,
    delete_scheduled_ids,
    find_scheduled_shards,
    move_scheduled,
)
from broker.model.freeze import Freeze
from broker.model.message import NewMessage
from broker.model.message_id import FIRST_ID_SEQ
from tests.fixtures.log import SECOND, Log

Waiting = tuple[str, int | None]  # text, and seconds until it is due


async def schedule(log: Log, *messages: Waiting, key: str = "", shared: Sequence[str] = ()) -> Appended | None:
    """Publish a request; those without seconds come at once."""
    given = [NewMessage(data=text.encode(), attributes={"t": text}, ordering_key=key) for text, _ in messages]
    due_ats = [None if seconds is None else log.start + seconds * SECOND for _, seconds in messages]
    async with log.session() as session:
        batch = encode_scheduled(given, due_ats, shared)
        return await append_messages(session, shard_id=log.shard_id, requests=[batch], now=log.start)


async def publish_due(log: Log, now: datetime) -> int:
    async with log.session() as session:
        return len(await append_due(session, shard_id=log.shard_id, now=now))


async def delivered(log: Log, now: datetime) -> list[tuple[str, int, int]]:
    """Text, sequence, and the number of the id, of all that a pull gets and acks."""
    found = []
    for delivery in await log.pull(now=now):
        await log.acknowledge(delivery)
        found += [(m.data.decode(), m.seq, m.seq if m.id_seq is None else m.id_seq) for m in delivery.messages]
    return found


async def test_a_message_comes_in_its_time_under_the_id_that_it_was_given(log: Log) -> None:
    appended = await schedule(log, ("late", 20), ("now", None), ("soon", 10))
    assert appended == Appended(1, log.start, FIRST_ID_SEQ + 1)
    assert await delivered(log, log.start) == [("now", 1, 1)]
    assert await publish_due(log, log.start + 9 * SECOND) == 0
    soon = log.start + 10 * SECOND
    assert await publish_due(log, soon) == 1
    [delivery] = await log.pull(now=soon)
    [message] = delivery.messages
    assert (message.seq, message.id_seq, message.publish_time) == (2, FIRST_ID_SEQ + 2, soon)
    await log.nack(delivery, now=soon)
    assert await delivered(log, soon) == [("soon", 2, FIRST_ID_SEQ + 2)]  # again under the same one
    assert await publish_due(log, soon + 600 * SECOND) == 1
    assert await delivered(log, soon + 600 * SECOND) == [("late", 3, FIRST_ID_SEQ + 1)]
    async with log.session() as session:
        numbers = [await sequence_of(session, shard_id=log.shard_id, id_seq=FIRST_ID_SEQ + n) for n in (1, 2, 3)]
        assert numbers == [3, 2, None]
        assert await find_scheduled_shards(session) == []


async def test_many_come_in_the_order_of_their_times_in_bounded_transactions(log: Log) -> None:
    count = MAX_DUE + 200
    for first in range(0, count, 100):
        await schedule(log, *((f"{n}", 1 + (count - n) % 7) for n in range(first, first + 100)))
    at = log.start + 60 * SECOND
    assert [await publish_due(log, at) for _ in range(3)] == [MAX_DUE, 200, 0]
    came = [text for text, *_ in [*await delivered(log, at), *await delivered(log, at)]]
    assert came == sorted((str(n) for n in range(count)), key=lambda text: ((count - int(text)) % 7, int(text)))


async def test_messages_of_keys_and_with_shared_attributes_keep_them(log: Log) -> None:
    await schedule(log, ("a", 1), ("b", 1), key="k", shared=['{"s": "1"}', '{"s": "2"}'])
    await schedule(log, ("c", 1))
    await publish_due(log, log.start + SECOND)
    rows = await log.rows("SELECT ordering_key, attributes, convert_from(data, 'UTF8') FROM messages ORDER BY seq")
    assert rows == [("k", {"t": "a", "s": "1"}, "a"), ("k", {"t": "b", "s": "2"}, "b"), (None, {"t": "c"}, "c")]


async def test_what_is_cancelled_never_comes_and_what_came_cannot_be_cancelled(log: Log) -> None:
    await schedule(log, ("a", 1), ("b", 1), ("c", 1))
    where = {"shard_id": log.shard_id}
    cancel = {**where, "now": log.start, "by": "user:a@b.c"}
    async with log.session() as session:
        assert await cancel_scheduled(session, **cancel, id_seq=FIRST_ID_SEQ + 1)
        assert not await cancel_scheduled(session, **cancel, id_seq=FIRST_ID_SEQ + 1)
        later = log.start + 50 * SECOND
        assert await move_scheduled(session, **where, id_seq=FIRST_ID_SEQ + 2, due_at=later)
    assert await publish_due(log, log.start + SECOND) == 1
    async with log.session() as session:
        assert not await cancel_scheduled(session, **cancel, id_seq=FIRST_ID_SEQ + 3)
        assert not await move_scheduled(session, **where, id_seq=FIRST_ID_SEQ + 3, due_at=later)
    assert await publish_due(log, later) == 1
    assert [text for text, *_ in await delivered(log, later)] == ["c", "b"]


async def test_nothing_is_taken_by_a_frozen_topic_nor_comes_to_it_and_all_goes_with_a_deleted_one(log: Log) -> None:
    await schedule(log, ("a", 1))
    async with log.database.transaction() as connection:
        await topics.freeze_topic(connection, topic=log.topic, freeze=Freeze("", log.start))
    assert await schedule(log, ("b", 1)) is None
    at = log.start + SECOND
    assert await publish_due(log, at) == 0
    async with log.session() as session:
        assert await find_scheduled_shards(session) == []
    async with log.database.transaction() as connection:
        await topics.freeze_topic(connection, topic=log.topic, freeze=None)
    assert await schedule(log, ("c", 1)) is not None
    async with log.session() as session:
        await delete_closed_schedules(session, shard_id=log.shard_id)  # it is open
        [shard] = await find_scheduled_shards(session)
    assert (shard.shard_id, shard.due_at, shard.open) == (log.shard_id, at, True)
    async with log.database.transaction() as connection:
        await topics.delete_topic(connection, topic=log.topic)
    assert await schedule(log, ("d", 1)) is None
    assert await publish_due(log, at) == 0
    assert await log.rows("SELECT count(*) FROM scheduled_messages") == [(2,)]
    async with log.session() as session:
        assert [shard.open for shard in await find_scheduled_shards(session)] == [False]
        await delete_closed_schedules(session, shard_id=log.shard_id)
    assert await log.rows("SELECT count(*) FROM scheduled_messages") == [(0,)]


async def test_requests_of_one_flush_get_the_numbers_that_follow_each_other(log: Log) -> None:
    def request(*messages: Waiting) -> object:
        due_ats = [None if seconds is None else log.start + seconds * SECOND for _, seconds in messages]
        return encode_scheduled([NewMessage(data=text.encode()) for text, _ in messages], due_ats)

    plain = encode_messages([NewMessage(data=b"p1"), NewMessage(data=b"p2")])
    requests = [plain, request(("a", 5), ("b", None)), plain, request(("c", 5)), plain]
    async with log.session() as session:
        appended = await append_messages(session, shard_id=log.shard_id, requests=requests, now=log.start)  # type: ignore[arg-type]
    assert appended == Appended(1, log.start, FIRST_ID_SEQ + 1)
    await publish_due(log, log.start + 5 * SECOND)
    came = await delivered(log, log.start + 5 * SECOND)
    assert [text for text, *_ in came] == ["p1", "p2", "b", "p1", "p2", "p1", "p2", "a", "c"]
    assert [number for *_, number in came] == [*range(1, 8), FIRST_ID_SEQ + 1, FIRST_ID_SEQ + 2]


async def test_the_place_of_a_message_is_forgotten_a_while_after_the_log_has_it_no_more(log: Log) -> None:
    await schedule(log, ("a", 1))
    await publish_due(log, log.start + SECOND)
    kept = timedelta(hours=24)
    async with log.database.connection() as connection:
        assert await delete_scheduled_ids(connection, now=log.start, kept=kept) == 0
        await connection.execute("UPDATE scheduled_ids SET publish_time = '2000-01-01Z'")
        later = log.start + timedelta(days=90)
        assert await delete_scheduled_ids(connection, now=later, kept=kept) == 0
        assert await delete_scheduled_ids(connection, now=later + kept - SECOND, kept=kept) == 0
        assert await delete_scheduled_ids(connection, now=later + kept, kept=kept) == 1
