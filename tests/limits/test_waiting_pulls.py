"""Ten thousand pulls that wait, a thousand open streams: delivery as ever, bounded memory, nothing left behind."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import psycopg
import pytest

from broker.api.generated import messages
from broker.db.schema.tables import subscriptions
from broker.fairness.shared_capacity import SharedCapacity
from tests.fixtures.broker import NO_TLS, BrokerProcess, Rest, eventually, message
from tests.limits.conftest import MEGABYTE, good_client, rss
from tests.limits.crowd import UNAVAILABLE, Call, Crowd

PLACES = 13_600
MOST = SharedCapacity(PLACES).available(("p", "s"))  # that wait at a time for one alone: more than ten thousand
SETTINGS = {"BROKER_MAX_WAITING_PULLS": str(PLACES), "BROKER_PULL_WAIT_SECONDS": "600"}
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
PATIENCE = 300.0  # for ten thousand of anything; only a hang takes so long


@pytest.fixture
async def rest(broker: BrokerProcess, project: str) -> AsyncIterator[Rest]:
    async with httpx.AsyncClient(base_url=broker.url, timeout=PATIENCE, verify=NO_TLS) as client:
        yield Rest(client, project)


@pytest.fixture
async def crowd(broker: BrokerProcess) -> AsyncIterator[Crowd]:
    crowd = Crowd(broker.url)
    yield crowd
    await crowd.close()


def _pull(subscription: str) -> bytes:
    request: bytes = messages.PullRequest(subscription=subscription, max_messages=10).SerializeToString()
    return request


def _answered(calls: list[Call]) -> list[Call]:
    return [call for call in calls if call.status == 0]


def _refused(calls: list[Call]) -> list[Call]:
    return [call for call in calls if call.status is not None and call.status != 0]


async def _takes_messages_at_once(rest: Rest, text: str) -> None:
    """Nobody who is gone takes the message of a pull that comes now."""
    await rest.publish(text)
    received = await rest.pull(wait=True)
    assert len(received) == 1
    await rest.acknowledge(received)


async def test_ten_thousand_pulls_of_one_subscription_wait_and_leave_again(
    broker: BrokerProcess, rest: Rest, crowd: Crowd
) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    pulls = [(None, _pull(rest.subscription()))] * 10_000
    sizes = []
    async with good_client(broker):
        for number in range(3):
            calls = await crowd.call("Subscriber/Pull", pulls)
            await rest.publish(f"message {number}")
            await crowd.until(lambda calls=calls: _answered(calls), seconds=PATIENCE)
            [taker] = _answered(calls)
            [received] = messages.PullResponse.FromString(taker.message).received_messages
            assert received.message.data == f"message {number}".encode()
            await rest.acknowledge([{"ackId": received.ack_id}])
            sizes.append(rss(broker))
            await crowd.cancel(in_reverse=bool(number))
            assert not _refused(calls)
            await _takes_messages_at_once(rest, f"after {number}")
    assert sizes[0] < 800 * MEGABYTE
    assert sizes[2] - sizes[0] < 100 * MEGABYTE  # all of them leave nothing behind


async def test_pulls_past_the_bound_are_refused_with_a_hint_and_come_in_when_others_have_left(
    rest: Rest, crowd: Crowd
) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    pull = (None, _pull(rest.subscription()))
    for _ in range(2):
        calls = await crowd.call("Subscriber/Pull", [pull] * (MOST + 500))
        await crowd.until(lambda calls=calls: len(_refused(calls)) >= 500, seconds=PATIENCE)
        refused = _refused(calls)
        assert len(refused) == 500
        assert {call.status for call in refused} == {UNAVAILABLE}
        assert all(b"grpc-status-details-bin" in call.trailers for call in refused)  # RetryInfo
        await crowd.cancel()


async def test_a_thousand_connections_with_a_pull_each_wait_and_leave_again(
    broker: BrokerProcess, rest: Rest, project: str
) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    limits = httpx.Limits(max_connections=None)
    sizes = []
    for number in range(2):
        async with (
            good_client(broker),
            httpx.AsyncClient(base_url=broker.url, timeout=None, limits=limits, verify=NO_TLS) as client,
        ):
            waiting = Rest(client, project)
            pulls = [asyncio.create_task(waiting.pull(wait=True)) for _ in range(1_000)]
            done: set[asyncio.Task[list[object]]] = set()
            await asyncio.sleep(1)
            await rest.publish(f"message {number}")
            done, _ = await asyncio.wait(pulls, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
            [first] = done
            await rest.acknowledge(first.result())
            sizes.append(rss(broker))
            for pull in pulls:
                pull.cancel()
            await asyncio.gather(*pulls, return_exceptions=True)
        await eventually(lambda: len(broker.workers()[0].net_connections()) < 100)
        await _takes_messages_at_once(rest, f"after {number}")
    assert sizes[1] - sizes[0] < 100 * MEGABYTE


_COPY = """
    WITH copies AS (
        INSERT INTO subscriptions ({columns})
        SELECT {values} FROM subscriptions AS s, generate_series(1, {number}) AS n WHERE s.name LIKE %(ours)s
        RETURNING subscription_id, topic_id
    )
    INSERT INTO cursors (shard_id, subscription_id, next_publish_time, next_seq, due_floor)
    SELECT shard_id, copies.subscription_id, next_publish_time, next_seq, due_floor
    FROM copies JOIN subscriptions AS first USING (topic_id)
    JOIN cursors ON cursors.subscription_id = first.subscription_id
"""


async def _subscribe(broker: BrokerProcess, rest: Rest, topics: int, each: int) -> list[tuple[int, str]]:
    """The topics' numbers with the subscriptions' names.  Calls for all of them would take minutes."""
    for topic in range(topics):
        await rest.create_topic(f"topic{topic}")
        await rest.create_subscription(f"sub{topic}", f"topic{topic}")
    names = [column.name for column in subscriptions.columns if column.name != "subscription_id"]
    values = ["s.name || '-' || n" if name == "name" else f"s.{name}" for name in names]
    assert isinstance(broker.process.args, list)
    database_url = broker.process.args[broker.process.args.index("--database-url") + 1]
    async with await psycopg.AsyncConnection.connect(str(database_url)) as connection:
        copy = _COPY.format(columns=", ".join(names), values=", ".join(values), number=each)
        await connection.execute(copy, {"ours": f"{rest.project}/%"})
    return [
        (topic, rest.subscription(f"sub{topic}-{number}"))
        for topic in range(topics)
        for number in range(1, each + 1)
    ]


async def test_pulls_of_ten_thousand_subscriptions_wait_each_for_its_own(
    broker: BrokerProcess, rest: Rest, crowd: Crowd
) -> None:
    left = await _subscribe(broker, rest, topics=100, each=100)
    waiting: list[Call] = []
    async with good_client(broker):
        before = rss(broker)
        while left:  # those that nobody has looked after in time are to come again
            calls = await crowd.call("Subscriber/Pull", [((topic, name), _pull(name)) for topic, name in left])
            await asyncio.sleep(6)  # CLAIM_SECONDS, in which a pull is looked after or refused
            assert {call.status for call in _refused(calls)} <= {UNAVAILABLE}
            left = [call.subject for call in _refused(calls)]
            waiting += [call for call in calls if call.status is None]
        assert len(waiting) == 10_000
        assert rss(broker) - before < 800 * MEGABYTE
        await rest.publish("for a hundred", topic="topic42")
        await crowd.until(lambda: len(_answered(waiting)) >= 100, seconds=PATIENCE)
        assert {call.subject[0] for call in _answered(waiting)} == {42}
        assert all(b"for a hundred" in call.message for call in _answered(waiting))
        await crowd.cancel()
        async with asyncio.timeout(PATIENCE):
            await rest.publish("later", topic="topic7")
            assert len(await rest.pull("sub7-99", wait=True)) == 1


async def test_a_thousand_streams_are_open_and_leave_again(broker: BrokerProcess, rest: Rest, crowd: Crowd) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    request = messages.StreamingPullRequest(
        subscription=rest.subscription(), stream_ack_deadline_seconds=60, max_outstanding_messages=10
    ).SerializeToString()
    sizes = []
    async with good_client(broker):
        for number in range(3):
            calls = await crowd.call("Subscriber/StreamingPull", [(None, request)] * 1_000, ends=False)
            await rest.publish(*[message(f"{number}.{part}") for part in range(100)])
            took = lambda calls=calls: sum(  # noqa: E731
                len(messages.StreamingPullResponse.FromString(call.message).received_messages) for call in calls
            )
            await crowd.until(lambda took=took: took() >= 100, seconds=PATIENCE)
            assert took() == 100
            assert not [call for call in calls if call.status is not None]
            ack_ids = [
                received.ack_id
                for call in calls
                for received in messages.StreamingPullResponse.FromString(call.message).received_messages
            ]
            await rest.acknowledge([{"ackId": ack_id} for ack_id in ack_ids])
            sizes.append(rss(broker))
            await crowd.cancel()
            await _takes_messages_at_once(rest, f"after {number}")
    assert sizes[0] < 800 * MEGABYTE
    assert sizes[2] - sizes[0] < 100 * MEGABYTE
