"""Flushes with repeats, in the database: what is stored, under which sequences, and what is kept of it (J5)."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from broker.core.catalog import topic_rows as topics
from broker.core.log.messages import Appended, EncodedMessages, Identified, Stored, encode_messages
from broker.core.log.packing import Packing
from broker.core.log.partitions import IDENTITIES, list_partitions, make_partitions_ahead
from broker.db.driver.hot_connection import HotConnection
from broker.features.deduplication.identities import append_new, drop_identities_behind
from broker.features.deduplication.identity import identities
from broker.model.deduplication import Deduplication
from broker.model.freeze import Freeze
from broker.model.message import NewMessage
from broker.model.message_id import FIRST_ID_SEQ
from tests.fixtures.log import SECOND, Log

WINDOW = timedelta(seconds=600)
_SET_WINDOW = """UPDATE topics SET settings = '{"extensions": {"deduplication": {"window": "600s"}}}'"""


def request(*texts: str, due_at: datetime | None = None, shared: str = "") -> EncodedMessages:
    """A message "a1" has the id "a", and "-1" none; what is upper case comes later, what ends in "." is dropped."""
    messages = [
        NewMessage(data=text.encode(), attributes={} if text[0] == "-" else {"broker-dedup-id": text[0]})
        for text in texts
    ]
    made = [None if text.endswith(".") else message for text, message in zip(texts, messages, strict=True)]
    due_ats = [due_at if text.isupper() else None for text in texts]
    stored = [message for message in made if message is not None]
    packing = Packing(made, stored, [shared] * len(stored) if shared else (), due_ats if any(due_ats) else None)
    digests = identities(messages, Deduplication(WINDOW))
    assert digests is not None
    return replace(packing.pack(), identified=Identified(digests, WINDOW, append_new), some=packing.some)


async def append(
    log: Log, *requests: EncodedMessages, now: datetime | None = None, connection: HotConnection | None = None
) -> list[Appended | Stored]:
    async with log.session(connection) as session:
        answers = await append_new(session, shard_id=log.shard_id, requests=requests, now=now or log.start)
    assert answers is not None
    return answers


async def id_seqs(log: Log, *texts: str, now: datetime | None = None) -> Sequence[int]:
    [answer] = await append(log, request(*texts), now=now)
    assert isinstance(answer, Stored)
    return answer.id_seqs


async def test_only_what_is_new_has_sequences(log: Log) -> None:
    assert await id_seqs(log, "a1", "b1", "-1") == [1, 2, 3]
    assert await id_seqs(log, "c1", "a2", "c2", "-2", "b2") == [4, 1, 4, 5, 2]
    assert await id_seqs(log, "a3", "b3") == [1, 2]
    assert await log.rows("SELECT head FROM shards") == [(5,)]
    assert await log.pull_texts() == ["a1", "b1", "-1", "c1", "-2"]


async def test_the_requests_of_a_flush_are_each_told_their_own(log: Log) -> None:
    await id_seqs(log, "a1")
    plain = encode_messages([NewMessage(data=b"plain")])
    answers = await append(log, request("b1", "a2"), plain, request("b2", "c1", "-1"), request("a3"))
    assert answers == [
        Stored([2, 1], [answers[0].sizes[0]], [1]),  # type: ignore[union-attr]
        Appended(3, log.start, FIRST_ID_SEQ + 1),
        Stored([2, 4, 5], [answers[2].sizes[0], 2], [0]),  # type: ignore[union-attr]
        Stored([1], (), [0]),
    ]
    assert await log.pull_texts() == ["a1", "b1", "plain", "c1", "-1"]


async def test_what_comes_later_and_what_is_dropped_have_ids_that_repeats_have_too(log: Log) -> None:
    due_at = log.start + SECOND
    [answer] = await append(log, request("a1", "B1", "c.", "D1", "-1", due_at=due_at, shared='{"s": "1"}'))
    assert isinstance(answer, Stored)
    assert answer.id_seqs == [1, FIRST_ID_SEQ + 1, 2, FIRST_ID_SEQ + 2, 3]
    assert await id_seqs(log, "D2", "c2", "B2", "a2", "e1") == [FIRST_ID_SEQ + 2, 2, FIRST_ID_SEQ + 1, 1, 4]
    later = request("B3", "F1", due_at=due_at), request("f2", "G1", due_at=due_at)
    answers = [answer.id_seqs for answer in await append(log, *later) if isinstance(answer, Stored)]
    assert answers == [[FIRST_ID_SEQ + 1, FIRST_ID_SEQ + 3], [5, FIRST_ID_SEQ + 4]]
    assert await log.rows("SELECT count(*) FROM scheduled_messages") == [(4,)]
    assert await log.pull_texts() == ["a1", "-1", "e1", "f2"]


async def test_past_its_window_a_message_is_new(log: Log) -> None:
    assert await id_seqs(log, "a1") == [1]
    assert await id_seqs(log, "a2", now=log.start + WINDOW - SECOND / 1000) == [1]
    assert await id_seqs(log, "a3", now=log.start + WINDOW) == [2]
    assert await id_seqs(log, "a4", now=log.start + WINDOW + SECOND) == [2]


async def test_a_shard_that_is_closed_or_frozen_takes_nothing_and_answers_no_repeat(log: Log) -> None:
    await id_seqs(log, "a1")
    async with log.database.transaction() as connection:
        await topics.freeze_topic(connection, topic=log.topic, freeze=Freeze("why", log.start, "who"))
    for texts in (["b1"], ["a2"], ["B1"]):
        async with log.session() as session:
            asked = [request(*texts, due_at=log.start + SECOND)]
            assert await append_new(session, shard_id=log.shard_id, requests=asked, now=log.start) is None
    await log.execute("UPDATE shards SET frozen_at = NULL, open = false")
    async with log.session() as session:
        assert await append_new(session, shard_id=log.shard_id, requests=[request("b1")], now=log.start) is None
    assert await log.rows("SELECT count(*) FROM message_identities") == [(1,)]


async def test_identities_go_by_partitions_once_no_window_reaches_back(log: Log) -> None:
    await log.execute(_SET_WINDOW)
    await id_seqs(log, "a1")

    async def dropped(now: datetime) -> int:
        async with log.database.connection() as connection:
            await make_partitions_ahead(connection, now=now)
            return await drop_identities_behind(connection, now=now)

    assert await dropped(log.start + WINDOW) == 0
    async with log.database.connection() as connection:
        [first, *_] = await list_partitions(connection, IDENTITIES)
    assert first.end - first.start == timedelta(hours=1)
    assert await dropped(first.end + WINDOW) == 0
    assert await dropped(first.end + WINDOW + timedelta(minutes=6)) == 1
    assert await log.rows("SELECT count(*) FROM message_identities") == [(0,)]
    assert await id_seqs(log, "a2", now=first.end + WINDOW + timedelta(minutes=6)) == [2]
    await log.execute("UPDATE topics SET settings = '{}'")
    assert await dropped(first.end + timedelta(days=3)) >= 1


async def test_partitions_that_a_killed_process_has_detached_are_dropped(log: Log) -> None:
    async with log.database.connection() as connection:
        [first, *_] = await list_partitions(connection, IDENTITIES)
        await connection.execute(f"ALTER TABLE message_identities DETACH PARTITION {first.name}".encode())
        await drop_identities_behind(connection, now=log.start)
    assert await log.rows(f"SELECT to_regclass('{first.name}')") == [(None,)]
