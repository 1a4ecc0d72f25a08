"""10,000 subscriptions that all lag, listed to the end while messages are published and samples are taken."""

import asyncio
from datetime import datetime
from functools import partial
from typing import Any

import pytest
from sqlalchemy import event

from tests.features.lag_board.conftest import Board, names_of
from tests.fixtures.broker import eventually
from tests.fixtures.log import Log

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

COUNT, TOPICS = 10_000, 100


async def _fill(log: Log) -> None:
    await log.execute(
        "INSERT INTO topics (name, created_at)"
        f" SELECT 'projects/p/topics/many' || n, now() FROM generate_series(1, {TOPICS}) AS n"
    )
    await log.execute(
        f"INSERT INTO shards (topic_id, ordinal, last_publish_time) SELECT topic_id, 0, '{log.start}'"
        " FROM topics WHERE name LIKE 'projects/p/topics/many%'"
    )
    await log.execute(
        "INSERT INTO subscriptions (name, topic, topic_id, retain_acked_messages, message_retention,"
        " enable_message_ordering, detached, created_at, last_active_at)"
        " SELECT 'projects/p/subscriptions/s' || lpad(n::text, 6, '0'), name, topic_id, false, '7 days', false,"
        f" false, '{log.start}', '{log.start}' FROM generate_series(1, {COUNT - 1}) AS n"
        f" JOIN topics ON name = 'projects/p/topics/many' || n % {TOPICS} + 1"
    )
    await log.execute(
        "INSERT INTO cursors (shard_id, subscription_id, next_publish_time, next_seq, due_floor, first_seq)"
        f" SELECT h.shard_id, s.subscription_id, h.last_publish_time, 1, '{log.start}', 1 FROM subscriptions AS s"
        " JOIN shards AS h USING (topic_id) WHERE s.name LIKE 'projects/p/subscriptions/s0%'"
    )
    await _publish(log)
    await log.execute("ANALYZE")


async def _publish(log: Log) -> None:
    """To each topic, so many messages that the order of the subscriptions changes."""
    await log.execute(
        "WITH published AS (UPDATE shards SET head = head + 1 + shard_id * 7 % 13 RETURNING shard_id, head)"
        " INSERT INTO message_batches (shard_id, publish_time, last_seq, count, size, data)"
        f" SELECT shard_id, '{log.start}', head, 1 + shard_id * 7 % 13, 10,"
        " array_fill('a'::bytea, ARRAY[(1 + shard_id * 7 % 13)::int]) FROM published"
    )


async def _is_newer(board: Board, before: datetime | None) -> bool:
    return (await board.page(size=1)).sampled_at != before


@pytest.mark.parametrize("order_by", ["", "undeliveredMessages desc", "incomingMessagesPerSecond"])
async def test_a_list_ends_without_a_gap_or_a_duplicate(board: Board, log: Log, order_by: str) -> None:
    await _fill(log)
    await board.sample()
    found: list[str] = []
    is_listed = asyncio.Event()

    async def change() -> None:
        while not is_listed.is_set():
            await _publish(log)
            await board.sample()

    changing = asyncio.create_task(change())
    token, sampled_at = "", set()
    while True:
        page = await board.page(order_by=order_by, size=500, token=token)
        found += names_of(page.entries)
        sampled_at.add(page.sampled_at)
        token = page.next_page_token
        if not token:
            break
        if len(found) in (2_500, 5_000):  # another sample is complete
            await eventually(partial(_is_newer, board, page.sampled_at))
    is_listed.set()
    await changing
    assert len(sampled_at) >= 3
    assert len(found) == len(set(found)) == COUNT


async def test_a_page_takes_the_same_statements_however_many_there_are(board: Board, log: Log) -> None:
    statements: list[str] = []
    engine = log.database._engine.sync_engine

    def note(*arguments: object) -> None:
        statements.append(str(arguments[2]))

    async def sent_for(**asked: Any) -> int:
        statements.clear()
        event.listen(engine, "before_cursor_execute", note)
        assert len((await board.page(size=50, **asked)).entries) == min(50, few)
        event.remove(engine, "before_cursor_execute", note)
        return len(statements)

    for number in range(60):
        await board.add(f"few{number:02}")
    await board.sample()
    few = 61
    lists: list[dict[str, str]] = [
        {},
        {"order_by": "undeliveredMessages"},
        {"where": "name!=none"},
        {"order_by": "subscription"},
    ]
    before = [await sent_for(**each) for each in lists]
    await _fill(log)
    await board.sample()
    assert [await sent_for(**each) for each in lists] == before
    assert max(before) <= 6


async def test_a_page_without_a_filter_reads_subscriptions_by_index(board: Board, log: Log) -> None:
    await _fill(log)
    await board.sample()
    await log.execute("ANALYZE")
    sent: list[tuple[str, Any]] = []

    def note(*arguments: Any) -> None:
        sent.append((arguments[2], arguments[3]))

    engine = log.database._engine.sync_engine
    event.listen(engine, "before_cursor_execute", note)
    first = await board.page(size=50)
    await board.page(size=50, token=first.next_page_token, order_by="")
    await board.page(size=50, order_by="subscription desc")
    event.remove(engine, "before_cursor_execute", note)
    plans = []
    async with log.database.transaction() as connection:
        for statement, given in sent:
            if "JOIN lag_samples" in statement:
                rows = await connection.exec_driver_sql(f"EXPLAIN {statement}", given)
                plans.append("\n".join(row[0] for row in rows))
    assert len(plans) == 3
    assert [
        plan for plan in plans if "Seq Scan on subscriptions" in plan or "Seq Scan on lag_samples" in plan
    ] == []


async def test_subscriptions_at_rest_are_not_written_again(board: Board, log: Log) -> None:
    await _fill(log)
    await log.execute(
        "UPDATE cursors AS c SET next_seq = h.head + 1 FROM shards AS h WHERE h.shard_id = c.shard_id"
    )
    await board.sample()
    await board.sample()
    written = await log.rows("SELECT max(sampled_at) FROM lag_samples")
    before = (await board.page()).sampled_at
    assert before is not None
    await board.sample()
    assert await log.rows("SELECT max(sampled_at) FROM lag_samples") == written
    after = (await board.page()).sampled_at
    assert after is not None
    assert after > before
