"""Shards of a topic that are made more while it is in use, an extension (L1)."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from broker.app.broker import Broker
from broker.app.config import AppConfig
from broker.model.message_id import parse_message_id
from tests.fixtures.broker import Json, Rest, message, text
from tests.fixtures.in_process import running_in_process
from tests.fixtures.push_sink import PushSink

KEYS = [f"key-{n}" for n in range(16)]


pytestmark = pytest.mark.own_broker


async def raise_shards(rest: Rest, count: Any, topic: str = "topic") -> Json:
    change = {"topic": {"extensions": {"shards": count}}, "updateMask": "extensions"}
    return await rest.ok("PATCH", rest.topic(topic), change)


def shard_of(id_: str) -> int:
    return parse_message_id(id_)[0]


async def of_keys(rest: Rest) -> dict[str, int]:
    """In which shard the keys are."""
    return {key: shard_of((await rest.publish(message(key, orderingKey=key)))[0]) for key in KEYS}


async def test_keys_stay_where_they_are_and_the_others_use_all_shards(rest: Rest) -> None:
    assert "extensions" not in await rest.create_topic()
    await rest.create_topic("two", extensions={"shards": 2})
    for topic, there in (("topic", 1), ("two", 2)):
        await rest.create_subscription(topic, topic, enableMessageOrdering=True)
        before = {
            key: shard_of((await rest.publish(message("1", orderingKey=key), topic=topic))[0]) for key in KEYS
        }
        assert len(set(before.values())) == there
        assert (await raise_shards(rest, 4, topic))["extensions"] == {"shards": 4}
        assert (await raise_shards(rest, 4, topic))["extensions"] == {"shards": 4}
        after = {key: shard_of((await rest.publish(message("2", orderingKey=key), topic=topic))[0]) for key in KEYS}
        assert after == before
        used = {shard_of((await rest.publish("-", topic=topic))[0]) for _ in range(8)}
        assert len(used) == 4
        assert set(before.values()) <= used
        received = await rest.drain(topic)
        assert len(received) == 2 * len(KEYS) + 8
        for key in KEYS:
            assert [text(m) for m in received if m["message"].get("orderingKey") == key] == ["1", "2"]


async def test_publishes_of_a_process_that_is_never_idle_use_all_shards_alike(rest: Rest) -> None:
    await rest.create_topic(extensions={"shards": 4})

    async def publish() -> list[int]:
        ids = [await rest.publish(*["x"] * 100) for _ in range(10)]
        return [shard_of(id_) for of_request in ids for id_ in of_request]

    async with asyncio.TaskGroup() as tasks:
        publishers = [tasks.create_task(publish()) for _ in range(16)]
    stored = Counter(shard_id for publisher in publishers for shard_id in publisher.result())
    assert len(stored) == 4
    assert min(stored.values()) > sum(stored.values()) / 8, stored


async def test_whoever_waits_gets_what_comes_in_a_new_shard(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    waiting = asyncio.create_task(rest.pull(wait=True))
    await asyncio.sleep(0.1)
    await raise_shards(rest, 3)
    await rest.publish(message("a", orderingKey="k"))
    assert [text(m) for m in await waiting] == ["a"]
    for n in range(6):
        waiting = asyncio.create_task(rest.pull(wait=True))
        await rest.publish(str(n))
        assert [text(m) for m in await waiting] == [str(n)]
    positions = await rest.ok("GET", f"{rest.subscription()}/snapshot")
    assert len(positions["shards"]) == 3


async def test_pushes_come_from_new_shards(rest: Rest, push_sink: PushSink) -> None:
    await rest.create_topic()
    path = "/status/200/shards"
    await rest.create_subscription(pushConfig={"pushEndpoint": push_sink.url + path})
    await rest.publish("first")
    await push_sink.wait_for(path, 1)
    await raise_shards(rest, 3)
    for _ in range(6):
        await rest.publish("later")
    await push_sink.wait_for(path, 7)


async def test_pauses_freezes_and_snapshots_hold_in_new_shards(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    await rest.publish("before")
    await rest.ok("PUT", f"{rest.project}/snapshots/snap", {"subscription": rest.subscription()})
    await rest.ok("POST", f"{rest.subscription()}:pause", {})
    await rest.ok("POST", f"{rest.topic()}:freeze", {})
    await raise_shards(rest, 3)
    for _ in range(3):
        assert (await rest.error("POST", f"{rest.topic()}:publish", {"messages": [message("x")]}))[0] == (
            "FAILED_PRECONDITION"
        )
    await rest.ok("POST", f"{rest.topic()}:unfreeze", {})
    for n in range(6):
        await rest.publish(str(n))
    assert await rest.pull() == []
    await rest.ok("POST", f"{rest.subscription()}:resume", {})
    everything = {"before", *map(str, range(6))}
    assert {text(m) for m in await rest.drain()} == everything
    # All of it is later than the snapshot, or was not acked then.
    await rest.ok("POST", f"{rest.subscription()}:seek", {"snapshot": f"{rest.project}/snapshots/snap"})
    assert {text(m) for m in await rest.drain()} == everything


async def test_a_purge_lets_keys_spread_over_all_shards(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    await raise_shards(rest, 4)
    assert len(set((await of_keys(rest)).values())) == 1
    await rest.ok("POST", f"{rest.topic()}:purge", {})
    assert len(set((await of_keys(rest)).values())) == 4
    assert len(await rest.drain()) == len(KEYS)


@pytest.mark.parametrize("given", [0, 257, -1, 1.5, "4", True])
async def test_what_cannot_be_is_refused_by_field_and_value(rest: Rest, given: Any) -> None:
    await rest.create_topic()
    for method, path, body in (
        ("PUT", rest.topic("other"), {"extensions": {"shards": given}}),
        ("PATCH", rest.topic(), {"topic": {"extensions": {"shards": given}}, "updateMask": "extensions"}),
    ):
        code, why = await rest.error(method, path, body)
        assert (code, "extensions.shards" in why) == ("INVALID_ARGUMENT", True), why
    assert "extensions" not in await rest.ok("GET", rest.topic())


async def test_there_are_never_fewer(rest: Rest) -> None:
    await rest.create_topic(extensions={"shards": 3})
    change = {"topic": {"extensions": {"shards": 2}}, "updateMask": "extensions"}
    code, why = await rest.error("PATCH", rest.topic(), change)
    assert (code, "extensions.shards=2" in why) == ("FAILED_PRECONDITION", True)
    for kept in ({}, {"delay": True}):  # what is not said stays
        change = {"topic": {"extensions": kept}, "updateMask": "extensions"}
        assert (await rest.ok("PATCH", rest.topic(), change))["extensions"] == {**kept, "shards": 3}


async def test_another_broker_hears_of_it(database_url: str) -> None:
    def broker() -> Any:
        return running_in_process(Broker(AppConfig(database_url=database_url)))

    async with broker() as first, broker() as second:
        one, other = (Rest(client, "projects/p") for client in (first, second))
        await one.create_topic()
        await one.create_subscription()
        [id_] = await other.publish(message("1", orderingKey="k"))
        waiting = asyncio.create_task(other.pull(wait=True))
        assert [text(m) for m in await waiting] == ["1"]
        waiting = asyncio.create_task(other.pull(wait=True))
        await asyncio.sleep(0.1)
        await raise_shards(one, 4)
        assert not await _published_in_one_shard(other, 8)
        assert await waiting
        assert shard_of((await other.publish(message("2", orderingKey="k")))[0]) == shard_of(id_)


async def _published_in_one_shard(rest: Rest, count: int) -> bool:
    return len({shard_of((await rest.publish("-"))[0]) for _ in range(count)}) == 1


async def test_a_topic_with_many_subscriptions_gets_shards_in_one_step(rest: Rest) -> None:
    await rest.create_topic()
    for n in range(40):
        await rest.create_subscription(f"sub-{n}")
    await raise_shards(rest, 5)
    for _ in range(5):
        await rest.publish("-")
    for n in range(40):
        assert len(await rest.drain(f"sub-{n}")) == 5
