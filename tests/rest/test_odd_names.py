"""Resources whose names today's rules refuse: release 0.1.0 took any project.  They stay readable and deletable."""

from collections.abc import Callable
from urllib.parse import quote

import httpx
import pytest

from broker.domain.subscription import Subscription
from broker.domain.topic import Topic
from broker.store.driver.database import Database
from broker.store.resources.subscriptions import insert_subscription
from broker.store.resources.topics import insert_topic
from tests.fixtures.broker import BrokerProcess, Rest, text
from tests.fixtures.grpc import GrpcRest, channel_to

ODD = ["a" * 8_000, "ö d\nd"]  # the first is beyond what a notification holds


async def _make(database: Database, owner: str) -> tuple[str, str]:
    """A topic and a subscription of a project that none could be made in today."""
    topic, subscription = f"projects/{owner}/topics/topic", f"projects/{owner}/subscriptions/sub"
    now = await database.now()
    async with database.transaction() as connection:
        made = await insert_topic(connection, topic=Topic(name=topic), shard_count=1, now=now)
        assert made is not None
        wanted = Subscription(name=subscription, topic=topic)
        await insert_subscription(connection, subscription=wanted, topic_id=made.topic_id, now=now)
        stranger = Subscription(name=f"{subscription}-of-a-stranger", topic=topic)
        await insert_subscription(connection, subscription=stranger, topic_id=made.topic_id, now=now)
    return topic, subscription


def _path(name: str) -> str:
    return "/".join(quote(segment, safe="") for segment in name.split("/"))


@pytest.mark.parametrize("door", ["REST", "gRPC"])
async def test_what_has_an_odd_name_can_be_read_used_changed_and_deleted(
    database: Database, database_url: str, start_broker: Callable[..., BrokerProcess], door: str
) -> None:
    made = {owner: await _make(database, owner) for owner in ODD}
    broker = start_broker("--database-url", database_url, "--port", "0")
    async with httpx.AsyncClient(base_url=broker.url, timeout=60) as client:
        with channel_to(broker.url) as channel:
            for owner, (topic, subscription) in made.items():
                rest = Rest(client, "") if door == "REST" else GrpcRest(channel, "")
                await _live(rest, f"projects/{quote(owner, safe='')}", topic, subscription)
    assert not [line for line in broker.log if "Traceback" in line]


async def _live(rest: Rest, project: str, topic: str, subscription: str) -> None:
    topic_path, path = _path(topic), _path(subscription)
    assert (await rest.ok("GET", f"{project}/topics"))["topics"][0]["name"] == topic
    assert (await rest.ok("GET", f"{topic_path}/subscriptions"))["subscriptions"][0] == subscription
    assert (await rest.ok("GET", path))["topic"] == topic
    await rest.ok("POST", f"{topic_path}:publish", {"messages": [{"data": "eA=="}]})
    pulled = await rest.ok("POST", f"{path}:pull", {"maxMessages": 1})
    assert [text(m) for m in pulled["receivedMessages"]] == ["x"]
    await rest.ok("POST", f"{path}:acknowledge", {"ackIds": [pulled["receivedMessages"][0]["ackId"]]})
    change = {"subscription": {"labels": {"a": "b"}}, "updateMask": "labels"}
    assert (await rest.ok("PATCH", path, change))["labels"] == {"a": "b"}
    assert await rest.ok("DELETE", topic_path) == {}  # whoever has subscribed to it, and under whatever name
    assert (await rest.ok("GET", path))["topic"] == "_deleted-topic_"
    assert await rest.ok("DELETE", path) == {}
    assert (await rest.error("GET", path))[0] == "INVALID_ARGUMENT"
