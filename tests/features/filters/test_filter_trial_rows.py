"""Trying a filter on the log: newest first, in bounded steps, over all shards of a topic (A3)."""

import asyncio
from dataclasses import astuple
from datetime import datetime, timedelta
from typing import Any

import pytest

from broker.core.catalog import topic_rows as topics
from broker.core.filtering.jsonpath import to_jsonpath
from broker.core.filtering.parser import parse_filter
from broker.core.log.log_page import FilterTest, LogPage, LogPosition, parse_log_page
from broker.core.log.messages import append_messages, encode_messages
from broker.core.log.partitions import make_partitions_ahead
from broker.core.process.database_clock import DatabaseClock
from broker.db.driver.database import Database
from broker.db.driver.replica_reads import ReplicaReads
from broker.fairness.resource_turns import INSPECTIONS_AT_ONCE, ResourceTurns
from broker.features.filters import trial_rows as filters
from broker.features.filters.trial_service import FilterService
from broker.model.errors import DeadlineExceeded
from broker.model.message import NewMessage
from broker.model.page import page_token
from broker.model.topic import Topic

PROD = to_jsonpath(parse_filter('attributes.env = "prod"'))
SECOND = timedelta(seconds=1)


class Trial:
    """A topic with some shards.  A message is told by its attribute `n`."""

    def __init__(self, database: Database, topic: Topic, now: datetime) -> None:
        self.database = database
        self.topic = topic
        self.start = now

    async def publish(
        self, *envs: str, shard: int = 0, at: datetime | None = None, padding: str = "", data: bytes = b""
    ) -> None:
        messages = [
            NewMessage(data=data, attributes={"n": f"{n}{env}", "env": env, "x": padding})
            for n, env in enumerate(envs)
        ]
        async with self.database.hot() as connection:
            await append_messages(
                connection,
                shard_id=self.topic.shard_ids[shard],
                requests=[encode_messages(messages)],
                now=at or self.start,
            )

    async def page(
        self,
        size: int = 100,
        before: LogPosition | None = None,
        *,
        filter_path: str | None = PROD,
        body_path: str | None = None,
        since: datetime | None = None,
        with_data: bool = False,
    ) -> FilterTest:
        async with self.database.hot() as connection:
            return await filters.test_filter(
                connection,
                shard_ids=self.topic.shard_ids,
                filter_path=filter_path,
                body_path=body_path,
                retained_since=since or self.start - timedelta(days=7),
                page=LogPage(size, before, with_data),
            )

    async def all_pages(self, size: int = 100, *, with_data: bool = False) -> list[FilterTest]:
        pages = [await self.page(size, with_data=with_data)]
        while pages[-1].rest is not None:
            again = parse_log_page(size, page_token(*astuple(pages[-1].rest)))
            assert again.before == pages[-1].rest
            pages.append(await self.page(size, again.before, with_data=with_data))
        return pages


def names(*pages: FilterTest) -> list[str]:
    return [message.attributes.split('"n": "')[1].split('"')[0] for page in pages for message in page.matched]


@pytest.fixture
async def trial(database: Database, now: datetime) -> Trial:
    async with database.transaction() as connection:
        wanted = Topic(name="projects/p/topics/trial")
        topic = await topics.insert_topic(connection, topic=wanted, shard_count=3, now=now)
    assert topic is not None
    return Trial(database, topic, now)


async def test_an_empty_log_has_nothing(trial: Trial) -> None:
    assert await trial.page() == FilterTest([], 0, None)


async def test_matches_come_newest_first_and_all_that_was_looked_at_is_counted(trial: Trial) -> None:
    await trial.publish("prod", "test", "prod")
    await trial.publish("test", "prod", at=trial.start + SECOND)
    page = await trial.page()
    assert (names(page), page.scanned, page.rest) == (["1prod", "2prod", "0prod"], 5, None)


async def test_without_a_filter_all_match(trial: Trial) -> None:
    await trial.publish("prod", "test")
    assert names(await trial.page(filter_path=None)) == ["1test", "0prod"]


async def test_what_is_not_retained_is_not_looked_at(trial: Trial) -> None:
    await trial.publish("prod")
    await trial.publish("prod", "prod", at=trial.start + SECOND)
    page = await trial.page(since=trial.start + SECOND)
    assert (len(page.matched), page.scanned) == (2, 2)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
async def test_pages_of_any_size_have_each_match_of_all_shards_and_partitions_once(trial: Trial, size: int) -> None:
    async with trial.database.connection() as connection:
        await make_partitions_ahead(connection, now=trial.start + timedelta(hours=1))
    for shard in (0, 2):
        await trial.publish(*["prod", "test"] * 3, shard=shard)
        await trial.publish(*["test", "prod", "prod"], shard=shard, at=trial.start + timedelta(hours=1))
    pages = await trial.all_pages(size)
    assert names(*pages) == ["2prod", "1prod", "4prod", "2prod", "0prod"] * 2
    assert sum(page.scanned for page in pages) == 18
    assert all(len(page.matched) <= size for page in pages)
    found = [(m.shard_id, m.seq) for page in pages for m in page.matched]
    assert len(set(found)) == len(found) == 10


async def test_a_call_looks_at_a_bounded_number_of_messages_in_all_shards(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters, "MAX_SCANNED", 10)
    for shard in range(3):
        await trial.publish("prod", *["test"] * 24, shard=shard)
    pages = await trial.all_pages()
    assert max(page.scanned for page in pages) == 10
    assert sum(page.scanned for page in pages) == 75
    assert names(*pages) == ["0prod"] * 3


async def test_large_attributes_end_a_page(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "MAX_RESPONSE_BYTES", 2_500)
    await trial.publish(*["prod", "test"] * 5, padding="x" * 1000)
    await trial.publish(*["prod"] * 5, shard=1, padding="x" * 1000)
    pages = await trial.all_pages()
    assert sum(len(page.matched) for page in pages) == 10
    assert max(len(page.matched) for page in pages) == 3


@pytest.mark.parametrize("apart", [False, True], ids=["in batches", "each in a row"])
async def test_large_data_ends_a_page_if_it_is_asked_for(
    trial: Trial, monkeypatch: pytest.MonkeyPatch, apart: bool
) -> None:
    monkeypatch.setattr(filters, "MAX_RESPONSE_BYTES", 2_500)
    size = 2_000 if apart else 500
    await trial.publish(*["prod", "test"] * 5, data=b"x" * size)
    assert len((await trial.page()).matched) == 5
    pages = await trial.all_pages(with_data=True)
    assert [m.data for page in pages for m in page.matched] == [b"x" * size] * 5
    assert names(*pages) == ["8prod", "6prod", "4prod", "2prod", "0prod"]
    assert max(len(page.matched) for page in pages) == (2 if apart else 5)


async def test_messages_published_meanwhile_change_no_later_page(trial: Trial) -> None:
    await trial.publish(*["prod"] * 4)
    first = await trial.page(2)
    await trial.publish(*["prod"] * 4, at=trial.start + SECOND)
    rest = await trial.page(100, first.rest)
    assert names(first, rest) == ["3prod", "2prod", "1prod", "0prod"]


class Watched:
    """The statements of trials, as the store runs them: how many at once, and no further than `may_go_on`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.under_way = self.most = self.begun = 0
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self._of_the_store = filters.test_filter
        monkeypatch.setattr(filters, "test_filter", self._test_filter)

    async def _test_filter(self, *arguments: Any, **named: Any) -> FilterTest:
        self.under_way += 1
        self.begun += 1
        self.most = max(self.most, self.under_way)
        try:
            await self.may_go_on.wait()
            return await self._of_the_store(*arguments, **named)
        finally:
            self.under_way -= 1


async def _service(trial: Trial) -> FilterService:
    await trial.publish("prod", "test")
    clock = DatabaseClock(trial.database)
    await clock.synchronise()
    return FilterService(
        trial.database, ReplicaReads(trial.database), clock, ResourceTurns(at_once=INSPECTIONS_AT_ONCE)
    )


async def test_trials_take_turns_and_leave_the_connections_to_publishes_and_pulls(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty callers once made everybody else's publish wait for seconds."""
    watched, service = Watched(monkeypatch), await _service(trial)
    page = LogPage(size=10)
    await asyncio.gather(*[service.test_filter(trial.topic.name, "", page) for _ in range(20)])
    assert watched.most == INSPECTIONS_AT_ONCE


async def test_a_trial_whose_caller_goes_while_it_waits_is_not_begun(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched, service = Watched(monkeypatch), await _service(trial)
    page, gone = LogPage(size=10), asyncio.Event()

    async def hung_up() -> None:
        await gone.wait()

    watched.may_go_on.clear()
    first = asyncio.create_task(service.test_filter(trial.topic.name, "", page))
    waiting = [
        asyncio.create_task(service.test_filter(trial.topic.name, "", page, hung_up=hung_up)) for _ in range(3)
    ]
    await asyncio.sleep(0)
    gone.set()
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(answer, DeadlineExceeded) for answer in answers)
    watched.may_go_on.set()
    await first
    await service.test_filter(trial.topic.name, "", page)
    assert watched.begun == 2
