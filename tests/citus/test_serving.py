"""Brokers on a schema whose shards lie on two workers: what they deliver, and what one that goes away costs."""

import asyncio
import base64
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import count

import httpx
import pytest
from sqlalchemy import make_url

from broker.core.log.partitions import list_partitions
from broker.core.retention.retention_janitor import RetentionJanitor
from broker.db.driver.database import Database
from broker.db.driver.statements import BEGIN, COMMIT, Statement
from broker.model.errors import Unavailable, Unimplemented
from tests.citus.conftest import broker_options
from tests.core.retention.test_retention_janitor import LaterClock
from tests.fixtures.broker import NO_TLS, BrokerProcess, Rest, eventually, message, text
from tests.fixtures.citus import NEEDS_CITUS, Node, Nodes
from tests.fixtures.core import make_core
from tests.fixtures.database import begin, in_schema
from tests.fixtures.log import SECOND, make_log

pytestmark = NEEDS_CITUS

_TOPICS = 6  # of a shard each: on both workers
StartBroker = Callable[..., BrokerProcess]


async def _pulled(rest: Rest, count: int, name: str = "sub") -> list[str]:
    """The texts of so many messages, acked."""
    texts: list[str] = []

    async def pull() -> bool:
        received = await rest.pull(name)
        await rest.acknowledge(received, name) if received else None
        texts.extend(map(text, received))
        return len(texts) >= count

    await eventually(pull)
    return texts


async def test_topics_on_both_workers_deliver(rest: Rest) -> None:
    for number in range(_TOPICS):
        topic, sub = f"topic-{number}", f"sub-{number}"
        await rest.create_topic(topic)
        await rest.create_subscription(sub, topic)
        texts = [f"{number} {each}" for each in range(50)]
        await rest.publish(*texts, topic=topic)
        assert sorted(await _pulled(rest, 50, sub)) == sorted(texts)
        assert await rest.pull(sub) == []
    await rest.ok("DELETE", rest.subscription("sub-0"))
    await rest.ok("DELETE", rest.topic("topic-1"))
    await rest.create_subscription("sub-0", "topic-0")


async def test_what_is_nacked_comes_back(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    await rest.publish(*map(str, range(20)))
    received = await rest.pull()
    await rest.acknowledge(received[::2])
    await rest.modify_ack_deadline(received[1::2], 0)
    assert sorted(await _pulled(rest, 10)) == sorted(map(text, received[1::2]))


async def test_what_is_to_come_later_comes(rest: Rest) -> None:
    await rest.create_topic(extensions={"shards": 3})
    await rest.create_subscription()
    later = [message(each, {"broker-delay": "1s"}) for each in "abc"]
    await rest.publish("now", *later)
    assert await _pulled(rest, 4) == ["now", *"abc"]


async def test_what_is_not_served_there_says_so(served_url: str) -> None:
    lock_all = Statement(b"lock_all", b"SELECT FROM shards FOR UPDATE")
    async with make_database(served_url) as (database, _):
        with pytest.raises(Unimplemented, match="could not run distributed query"):
            async with database.hot() as connection:
                await connection.run((lock_all, {}))


async def test_keys_keep_their_order(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription(enableMessageOrdering=True)
    for number in range(10):
        for key in "abc":
            await rest.publish({"data": _data(f"{key}{number}"), "orderingKey": key})
    [first, *_] = received = await rest.pull()
    await rest.modify_ack_deadline([m for m in received if _key(m) == _key(first)], 0)
    await rest.acknowledge([m for m in received if _key(m) != _key(first)])
    texts = [*(text(m) for m in received if _key(m) != _key(first)), *await _pulled(rest, 10)]
    for key in "abc":
        assert [each for each in texts if each[0] == key] == [f"{key}{number}" for number in range(10)]


async def test_what_fails_too_often_becomes_a_dead_letter(rest: Rest) -> None:
    for topic in ("topic", "letters"):
        await rest.create_topic(topic)
    policy = {"deadLetterTopic": rest.topic("letters"), "maxDeliveryAttempts": 5}
    await rest.create_subscription(deadLetterPolicy=policy)
    await rest.create_subscription("letters", "letters")
    await rest.publish("poison")
    for _ in range(5):
        received = await eventually(rest.pull)
        await rest.modify_ack_deadline(received, 0)
    assert await _pulled(rest, 1, "letters") == ["poison"]
    assert await rest.pull() == []


async def test_a_seek_and_a_snapshot_bring_messages_back(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription(retainAckedMessages=True)
    before = datetime.now(UTC)
    texts = list(map(str, range(30)))
    await rest.publish(*texts)
    received = await rest.pull(max_messages=10)
    await rest.acknowledge(received[:5])
    snapshot = f"{rest.project}/snapshots/snap"
    await rest.ok("PUT", snapshot, {"subscription": rest.subscription()})
    await rest.acknowledge(received[5:])
    await _pulled(rest, 20)
    seek = f"{rest.subscription()}:seek"
    await rest.ok("POST", seek, {"snapshot": snapshot})
    assert sorted(await _pulled(rest, 25)) == sorted(set(texts) - set(map(text, received[:5])))
    await rest.ok("POST", seek, {"time": before.isoformat()})
    assert sorted(await _pulled(rest, 30)) == sorted(texts)


def _data(words: str) -> str:
    return base64.b64encode(words.encode()).decode()


def _key(received: dict[str, object]) -> object:
    message = received["message"]
    assert isinstance(message, dict)
    return message["orderingKey"]


class Traffic:
    """Publishers at two brokers and a puller; what was answered, and what came."""

    def __init__(self, rests: list[Rest], *, publishers: int = 3) -> None:
        """`publishers`: of each topic, at each broker."""
        self.rests, self.publishers = rests, publishers
        self.answered: set[str] = set()
        self.came: set[str] = set()
        self.ids: defaultdict[str, set[str]] = defaultdict(set)  # under which a text came
        self.refused: set[int] = set()  # what was answered but 200
        self.going = True

    async def publish(self, rest: Rest, topic: str, name: str) -> None:
        for number in count():
            if not self.going:
                return
            texts = [f"{topic} {name} {number} {each}" for each in range(5)]
            body = {"messages": [{"data": _data(words)} for words in texts]}
            answer = await rest.call("POST", f"{rest.topic(topic)}:publish", body)
            if answer.status_code == 200:
                self.answered.update(texts)
            else:
                self.refused.add(answer.status_code)
                await asyncio.sleep(0.02)

    async def pull(self, rest: Rest, sub: str) -> None:
        while self.going or self.answered - self.came:
            body = {"maxMessages": 200, "returnImmediately": True}
            answer = await rest.call("POST", f"{rest.subscription(sub)}:pull", body)
            if answer.status_code != 200:
                self.refused.add(answer.status_code)
                continue
            received = answer.json().get("receivedMessages", [])
            if not received:
                await asyncio.sleep(0.02)
                continue
            self.came.update(map(text, received))
            for each in received:
                self.ids[text(each)].add(each["message"]["messageId"])
            ids = {"ackIds": [each["ackId"] for each in received]}
            self.refused.add((await rest.call("POST", f"{rest.subscription(sub)}:acknowledge", ids)).status_code)

    async def run(self, topics: range, meanwhile: Callable[[], None], *, seconds: float = 90) -> None:
        async with asyncio.timeout(seconds), asyncio.TaskGroup() as tasks:
            for number in topics:
                for which, rest in enumerate(self.rests):
                    for each in range(self.publishers):
                        tasks.create_task(self.publish(rest, f"topic-{number}", f"{which} {each}"))
                tasks.create_task(self.pull(self.rests[number % 2], f"sub-{number}"))
            await asyncio.to_thread(meanwhile)
            self.going = False


@pytest.fixture(params=["coordinator", "workers"])
async def two(
    request: pytest.FixtureRequest, served_url: str, start_broker: StartBroker, project: str
) -> AsyncIterator[list[Rest]]:
    """The REST API of two brokers on the same schema, with topics on both workers."""
    # Of the two the first goes by the coordinator, so that what one has written the other reads elsewhere.
    urls = [start_broker(*broker_options(served_url, hot)).url for hot in ("coordinator", request.param)]
    clients = [httpx.AsyncClient(base_url=url, timeout=60, verify=NO_TLS) for url in urls]
    rests = [Rest(client, project) for client in clients]
    for number in range(_TOPICS):
        await rests[0].create_topic(f"topic-{number}")
        await rests[0].create_subscription(f"sub-{number}", f"topic-{number}", ackDeadlineSeconds=10)
    yield rests
    for client in clients:
        await client.aclose()


async def test_two_brokers_lose_nothing_that_was_answered(two: list[Rest]) -> None:
    traffic = Traffic(two)
    await traffic.run(range(1), lambda: _wait(4))
    assert len(traffic.answered) > 500
    assert not traffic.answered - traffic.came
    assert traffic.refused <= {200}


def _wait(seconds: float) -> None:
    time.sleep(seconds)


async def test_a_worker_that_goes_away_and_comes_back_loses_nothing(two: list[Rest], citus_nodes: Nodes) -> None:
    worker = citus_nodes.workers[0]
    traffic = Traffic(two)

    def away() -> None:
        _wait(2)
        worker.stop("immediate")
        _wait(3)
        worker.start()
        _wait(3)

    await traffic.run(range(_TOPICS), away)
    assert not traffic.answered - traffic.came
    assert traffic.refused == {200, 503}


async def test_a_commit_that_has_no_answer_is_unavailable(served_url: str, citus_nodes: Nodes) -> None:
    async with make_database(served_url) as (database, now):
        log = await make_log(database, now, "commit")
        await log.publish("before")
        change = b"UPDATE shards SET open = true WHERE shard_id = $1"
        statement = Statement(b"change", change, (("shard_id", "int8"),))
        nodes = [(worker, str(make_url(served_url).database)) for worker in citus_nodes.workers]
        with pytest.raises(Unavailable, match="A node of the database went away"):
            await cut_at_commit(database, statement, log.shard_id, nodes)
        await log.publish("after")
        assert await log.pull_texts(now=log.start + SECOND) == ["before", "after"]


@asynccontextmanager
async def make_database(url: str) -> AsyncIterator[tuple[Database, datetime]]:
    """A database for tests of the store, and its time, with partitions around it."""
    database = Database(in_schema(url), pool_size=4)
    try:
        yield database, await begin(database)
    finally:
        await database.close()


async def cut_at_commit(
    database: Database, statement: Statement, shard_id: int, nodes: list[tuple[Node, str]]
) -> None:
    async with database.hot() as connection:
        await connection.run((BEGIN, {}), (statement, {"shard_id": shard_id}))
        for node, name in nodes:
            _end_sessions(node, name)
        await connection.run((COMMIT, {}))


def _end_sessions(node: Node, database: str) -> None:
    node.ask(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = %s AND application_name LIKE 'citus_internal%%'",
        database,
    )


async def test_the_janitor_drops_what_nobody_wants_and_keeps_the_rest(served_url: str) -> None:
    async with make_database(served_url) as (database, now):
        log = await make_log(database, now, "janitor")
        await log.publish("kept")
        clock = LaterClock(database)
        await clock.synchronise()
        async with database.connection() as connection:
            before = await list_partitions(connection)
            await RetentionJanitor(make_core(database, clock)).run_once()
            after = await list_partitions(connection)
        assert await log.pull_texts(now=log.start + SECOND) == ["kept"]
        [wanted] = [each for each in before if each.start <= log.start < each.end]
        assert wanted in after
