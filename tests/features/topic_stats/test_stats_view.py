"""The figures of topics: what was sampled of them, read in a fixed number of statements."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from time import perf_counter
from typing import Any

import pytest

from broker.access.principals.caller import ANONYMOUS
from broker.core.catalog import topic_rows as topics
from broker.core.lag.lag import NOT_SAMPLED, LagState
from broker.core.process.tasks import Tasks
from broker.db.driver.hot_connection import HotConnection
from broker.features.history.recorder import HistoryRecorder
from broker.features.topic_stats.rows import WORST_FIRST
from broker.features.topic_stats.stats_view import StatsView
from broker.model.page import Page, cut_page
from broker.model.timestamps import format_timestamp
from broker.model.topic import Topic
from broker.observability.metrics.counters import Counters
from broker.observability.metrics.families import PUBLISHED_MESSAGES
from tests.features.lag_board.conftest import Board
from tests.fixtures.core import make_core
from tests.fixtures.log import SECOND, Log

PROJECT = "projects/p"


@pytest.fixture
def board(log: Log) -> Board:
    return Board(log)


async def list_page(log: Log, page: Page) -> Sequence[Topic]:
    async with log.database.transaction() as connection:
        return await topics.list_topics(connection, project=PROJECT, page=page)


async def stats_of(board: Board, page: Page = Page(1_000, "")) -> dict[str, Any]:  # noqa: B008 (immutable)
    view = StatsView(board.log.database, board.clock, None)
    found = await view(ANONYMOUS, PROJECT, await list_page(board.log, page))
    return {name.rpartition("/")[2]: fields["stats"] for name, fields in found.items()}


async def one_of(board: Board) -> dict[str, Any]:
    stats: dict[str, Any] = (await stats_of(board))[board.log.topic.name.rpartition("/")[2]]
    return stats


def test_every_state_of_a_subscription_has_its_place() -> None:
    assert sorted(WORST_FIRST) == sorted([*LagState, NOT_SAMPLED])


async def test_the_worst_subscription_is_the_one_in_the_worst_state_and_of_these_the_furthest_behind(
    board: Board, log: Log
) -> None:
    assert (await one_of(board))["worstSubscription"] == {
        "subscription": log.subscription.name,
        "deliveryState": NOT_SAMPLED,
    }
    await board.sample()
    created = format_timestamp(log.start)
    assert (await one_of(board))["worstSubscription"] == {
        "subscription": log.subscription.name,
        "deliveryState": "CAUGHT_UP",
        "verdict": f"Nothing has been published to its topic since it was created at {created}.",
    }
    for name in ("a", "b", "c"):
        await board.add(name)
    await board.add("elsewhere", project="projects/other")
    await board.add("detached")
    await log.execute("UPDATE subscriptions SET detached = true WHERE name LIKE '%/detached'")
    await board.sample()
    await log.execute("UPDATE lag_samples SET state = 'PAUSED', oldest_unacked_at = now()")
    names = "SELECT subscription_id FROM subscriptions WHERE name LIKE '%/{}'"
    await log.execute(
        "UPDATE lag_samples SET state = 'NO_CONSUMERS', oldest_unacked_at = now() - interval '1 hour'"
        f" WHERE subscription_id IN ({names.format('b')})"
    )
    await log.execute(
        "UPDATE lag_samples SET state = 'NO_CONSUMERS', oldest_unacked_at = now() - interval '2 hours'"
        f" WHERE subscription_id IN ({names.format('c')})"
    )
    await log.execute(
        f"UPDATE lag_samples SET state = 'ENDPOINT_FAILING' WHERE subscription_id IN ({names.format('elsewhere')})"
    )
    stats = await one_of(board)
    assert stats["subscriptionCount"] == 5  # those of other projects, and none that is detached
    assert stats["worstSubscription"]["subscription"] == f"{PROJECT}/subscriptions/c"
    assert stats["worstSubscription"]["deliveryState"] == "NO_CONSUMERS"


async def test_what_a_topic_retains_is_the_number_and_the_size_of_the_messages_in_its_log(
    board: Board, log: Log
) -> None:
    assert await one_of(board) == await one_of(board) | {"retainedMessagesEstimate": 0, "retainedBytesEstimate": 0}
    for _ in range(3):
        await log.publish("ten bytes.", "ten bytes.")
    stats = await one_of(board)
    assert (stats["retainedMessagesEstimate"], stats["retainedBytesEstimate"]) == (6, 60)


async def test_the_rate_of_publishes_is_that_of_the_last_minute_in_history(board: Board, log: Log) -> None:
    counters = Counters()
    recorder = HistoryRecorder(make_core(log.database, board.clock, Tasks(), counters=counters))
    for number in range(200):  # in two chunks of history
        counters.topic(f"{PROJECT}/topics/other{number}")[PUBLISHED_MESSAGES] += 1
    counts = counters.topic(log.topic.name)
    start = board.clock.moment.replace(second=0, microsecond=0)
    for number in range(10):
        counts[PUBLISHED_MESSAGES] += 100 if number < 3 else 30
        await recorder.record_counters(start + 10 * number * SECOND)
    board.clock.moment = start + 100 * SECOND  # the point that has just ended may not be there yet
    assert (await one_of(board))["publishedMessagesPerSecond"] == 3.0
    board.clock.moment = start + 79 * SECOND  # the points from 0 to 60
    assert (await one_of(board))["publishedMessagesPerSecond"] == (3 * 100 + 3 * 30) / 60
    board.clock.moment = start + timedelta(hours=1)
    assert (await one_of(board))["publishedMessagesPerSecond"] == 0.0


COUNT = 10_000


async def _fill(log: Log) -> None:
    await log.execute(
        "INSERT INTO topics (name, created_at) SELECT 'projects/p/topics/many' || lpad(n::text, 6, '0'), now()"
        f" FROM generate_series(1, {COUNT - 1}) AS n"
    )
    await log.execute(
        f"INSERT INTO shards (topic_id, ordinal, last_publish_time, head) SELECT topic_id, 0, '{log.start}', 1"
        " FROM topics WHERE name LIKE 'projects/p/topics/many%'"
    )
    await log.execute(
        "INSERT INTO message_batches (shard_id, publish_time, last_seq, count, size, data)"
        f" SELECT shard_id, '{log.start}', 1, 1, 10, '{{aaaaaaaaaa}}' FROM shards WHERE head = 1"
    )
    await log.execute(
        "INSERT INTO subscriptions (name, topic, topic_id, retain_acked_messages, message_retention,"
        " enable_message_ordering, detached, created_at, last_active_at)"
        " SELECT replace(name, '/topics/', '/subscriptions/'), name, topic_id, false, '7 days', false, false,"
        f" '{log.start}', '{log.start}' FROM topics WHERE name LIKE 'projects/p/topics/many%'"
    )
    await log.execute(
        "INSERT INTO lag_samples (subscription_id, sampled_at, undelivered_messages, is_estimated,"
        " undelivered_bytes, oldest_unacked_at, outstanding_messages, blocked_messages, dead_letters,"
        " published_messages, state, details)"
        f" SELECT subscription_id, '{log.start}', 1, false, 10, '{log.start}', 0, 0, 0, 1, 'NO_CONSUMERS',"
        """ '{"verdict": "No client is pulling or streaming."}' FROM subscriptions"""
    )
    await log.execute("ANALYZE")


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_ten_thousand_topics_are_listed_to_their_end_while_publishing_goes_on(
    board: Board, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _fill(log)
    sent: list[int] = []
    run = HotConnection.run

    async def counted(self: HotConnection, *bound: Any) -> Any:
        sent.append(len(bound))
        return await run(self, *bound)

    is_listed = asyncio.Event()

    async def publish() -> None:
        while not is_listed.is_set():
            await log.publish("more")
            await log.execute("INSERT INTO topics (name, created_at) VALUES ('projects/p/topics/after', now())")
            await log.execute("DELETE FROM topics WHERE name = 'projects/p/topics/after'")

    publishing = asyncio.create_task(publish())
    view, page, found, seconds = (
        StatsView(log.database, board.clock, None),
        Page(50, ""),
        list[str](),
        list[float](),
    )
    while True:
        listed, token = cut_page(await list_page(log, page), page.size, lambda topic: topic.name)
        with monkeypatch.context() as patched:
            patched.setattr(HotConnection, "run", counted)
            sent.clear()
            began = perf_counter()
            stats = await view(ANONYMOUS, PROJECT, listed)
            seconds.append(perf_counter() - began)
        assert list(stats) == [topic.name for topic in listed]
        if not publishing.done() and len(seconds) > 1:
            assert stats[listed[0].name]["stats"]["worstSubscription"]["deliveryState"] == "NO_CONSUMERS"
        found += stats
        if not token:
            break
        page = Page(50, listed[-1].name)
    is_listed.set()
    await publishing
    assert len(found) == len(set(found)) >= COUNT
    print(
        f"a page of 50 takes {sorted(seconds)[len(seconds) // 2] * 1000:.1f} ms, at most {max(seconds) * 1000:.1f}"
    )


async def test_a_page_takes_the_same_statements_however_many_topics_it_has(
    board: Board, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    run = HotConnection.run

    async def counted(self: HotConnection, *bound: Any) -> Any:
        sent.append(len(bound))
        return await run(self, *bound)

    monkeypatch.setattr(HotConnection, "run", counted)
    await stats_of(board)
    few = sum(sent)
    for number in range(60):
        await log.execute(f"INSERT INTO topics (name, created_at) VALUES ('projects/p/topics/t{number}', now())")
    sent.clear()
    assert len(await stats_of(board)) == 61
    assert sum(sent) == few == 3
