"""Levels of urgency of a topic's messages, an extension (J4)."""

import asyncio
from typing import Any

import pytest

from broker.app.broker import Broker
from broker.app.config import AppConfig
from broker.model.message_id import parse_message_id
from tests.fixtures.broker import Json, Rest, eventually, message, text
from tests.fixtures.in_process import running_in_process

pytestmark = pytest.mark.own_broker


def of_level(body: str, level: Any = None, **fields: Any) -> Json:
    return message(body, {} if level is None else {"broker-priority": str(level)}, **fields)


async def change(rest: Rest, extensions: Json) -> Json:
    body = {"topic": {"extensions": extensions}, "updateMask": "extensions"}
    return await rest.ok("PATCH", rest.topic(), body)


async def one_by_one(rest: Rest, subscription: str = "sub") -> list[str]:
    """Each acked, until there is nothing more."""
    found = []
    while received := await rest.pull(subscription, max_messages=1):
        found += [text(m) for m in received]
        await rest.acknowledge(received, subscription)
    return found


def shard_of(id_: str) -> int:
    return parse_message_id(id_)[0]


async def test_the_most_urgent_comes_first(rest: Rest) -> None:
    assert (await rest.create_topic(extensions={"priorities": 3}))["extensions"] == {"priorities": 3}
    await rest.create_subscription()
    ids = await rest.publish(
        of_level("said nothing"), of_level("c", 2), of_level("b", 1), of_level("a", 0), of_level("b2", 1)
    )
    first, second, third, fourth, fifth = map(shard_of, ids)
    assert first == second
    assert third == fifth
    assert len({first, third, fourth}) == 3
    [id_] = await rest.publish(of_level("a2", 0))
    assert shard_of(id_) == fourth
    assert await one_by_one(rest) == ["a", "a2", "b", "b2", "said nothing", "c"]


async def test_what_comes_while_others_wait_is_next(rest: Rest) -> None:
    await rest.create_topic(extensions={"priorities": 2})
    await rest.create_subscription()
    await rest.publish(*map(str, range(10)))
    for n in range(5):
        await rest.publish(of_level(f"urgent {n}", 0))
        found = [text(m) for _ in range(2) for m in await rest.pull(max_messages=1)]
        assert found == [f"urgent {n}", str(n)]


async def test_what_is_nacked_goes_first_again(rest: Rest) -> None:
    await rest.create_topic(extensions={"priorities": 2})
    await rest.create_subscription()
    await rest.publish("-", of_level("urgent", 0))
    urgent = await rest.pull(max_messages=1)
    await rest.modify_ack_deadline(urgent, 0)
    assert await one_by_one(rest) == ["urgent", "-"]


async def test_on_another_topic_it_is_an_attribute_like_any(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription(enableMessageOrdering=True)
    await rest.publish(of_level("1"), of_level("2", "whatever"), of_level("3", 0))
    await rest.publish(of_level("4", 0, orderingKey="key"))
    assert await one_by_one(rest) == ["1", "2", "3", "4"]


async def test_a_level_that_cannot_be_is_refused_by_message_and_value(rest: Rest) -> None:
    await rest.create_topic(extensions={"priorities": 3})
    await rest.create_subscription()
    for level in ("", "x", "-1", "3", "00", "1.0", " 1", "\u0661", "1" * 1000):
        body = {"messages": [of_level("fine", 0), of_level("bad", level)]}
        code, why = await rest.error("POST", f"{rest.topic()}:publish", body)
        assert code == "INVALID_ARGUMENT"
        assert "messages[1].attributes.broker-priority" in why
        assert repr(level[:100]) in why
        assert len(why) < 500
    assert await rest.pull() == []


async def test_a_message_with_an_ordering_key_has_none(rest: Rest) -> None:
    await rest.create_topic(extensions={"priorities": 2})
    await rest.create_subscription(enableMessageOrdering=True)
    body = {"messages": [of_level("1", orderingKey="key"), of_level("2", "1", orderingKey="key")]}
    code, why = await rest.error("POST", f"{rest.topic()}:publish", body)
    assert (code, "messages[1]" in why, "'1'" in why) == ("INVALID_ARGUMENT", True, True)
    await rest.publish(of_level("1", orderingKey="key"))
    await rest.publish(of_level("urgent", 0))
    assert await one_by_one(rest) == ["urgent", "1"]


async def test_what_cannot_be_is_refused_by_field_and_value(rest: Rest) -> None:
    await rest.create_topic()
    levels: Json = {"levels": 2}
    for given in (
        *(0, 1, 11, -1, 1.5, "3", True, [3], {}),
        *(levels | {"age": age} for age in ("", "x", "0s", "-1s", "9999999s", 3)),
        *(levels | {"weights": weights} for weights in ([1], [1, 2, 3], [0, 1], [1, 1001], [1, 1.5], "12", 3)),
        {"levels": 2, "age": "60s", "weights": [1, 2]},
        {"levels": 2, "other": 1},
    ):
        for method, path, body in (
            ("PUT", rest.topic("other"), {"extensions": {"priorities": given}}),
            ("PATCH", rest.topic(), {"topic": {"extensions": {"priorities": given}}, "updateMask": "extensions"}),
        ):
            code, why = await rest.error(method, path, body)
            assert (code, "extensions.priorities" in why) == ("INVALID_ARGUMENT", True), why
    assert "extensions" not in await rest.ok("GET", rest.topic())


async def test_a_topic_in_use_gets_levels_and_other_ones(rest: Rest) -> None:
    await rest.create_topic(extensions={"shards": 2})
    await rest.create_subscription(enableMessageOrdering=True)
    keys = [f"key-{n}" for n in range(8)]
    before = {key: shard_of((await rest.publish(message("-", orderingKey=key)))[0]) for key in keys}
    await rest.publish(of_level("before", 0))
    waiting = asyncio.create_task(rest.pull(max_messages=100, wait=True))
    await rest.acknowledge(await waiting)
    waiting = asyncio.create_task(rest.pull(wait=True))
    await asyncio.sleep(0.1)
    assert (await change(rest, {"priorities": 3}))["extensions"] == {"shards": 2, "priorities": 3}
    [urgent] = await rest.publish(of_level("urgent", 0))
    received = [text(m) for m in await waiting]
    assert received
    await rest.drain()
    await change(rest, {"priorities": 5, "shards": 4})
    ids = {level: (await rest.publish(of_level(str(level), level)))[0] for level in (4, 3, 2, 1, 0)}
    assert shard_of(ids[0]) == shard_of(urgent)
    assert len(set(map(shard_of, ids.values()))) == 5
    assert {key: shard_of((await rest.publish(message("-", orderingKey=key)))[0]) for key in keys} == before
    await change(rest, {})  # what was urgent stays so
    [plain] = await rest.publish(of_level("-", 0))
    assert shard_of(plain) not in {shard_of(id_) for level, id_ in ids.items() if level < 4}
    assert (await one_by_one(rest))[:4] == ["0", "1", "2", "3"]
    assert (await rest.ok("GET", rest.topic()))["extensions"] == {"shards": 4}


async def test_pauses_freezes_snapshots_and_purges_hold_in_all_levels(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    await rest.publish("before")
    await rest.ok("PUT", f"{rest.project}/snapshots/snap", {"subscription": rest.subscription()})
    await rest.ok("POST", f"{rest.subscription()}:pause", {})
    await rest.ok("POST", f"{rest.topic()}:freeze", {})
    await change(rest, {"priorities": 2})
    body = {"messages": [of_level("x", 0)]}
    assert (await rest.error("POST", f"{rest.topic()}:publish", body))[0] == "FAILED_PRECONDITION"
    await rest.ok("POST", f"{rest.topic()}:unfreeze", {})
    await rest.publish(of_level("urgent", 0))
    assert await rest.pull() == []
    await rest.ok("POST", f"{rest.subscription()}:resume", {})
    assert await one_by_one(rest) == ["urgent", "before"]
    await rest.ok("POST", f"{rest.subscription()}:seek", {"snapshot": f"{rest.project}/snapshots/snap"})
    assert await one_by_one(rest) == ["urgent", "before"]
    await rest.publish("gone", of_level("gone", 0))
    await rest.ok("POST", f"{rest.topic()}:purge", {})
    await rest.publish("-", of_level("urgent", 0))
    assert await one_by_one(rest) == ["urgent", "-"]


async def test_what_comes_later_comes_as_urgent_as_it_is(rest: Rest) -> None:
    await rest.create_topic(extensions={"priorities": 2, "delay": True})
    await rest.create_subscription()
    later = {"broker-delay": "0.2s"}
    at_once, urgent, low = await rest.publish(
        "at once", message("urgent", {**later, "broker-priority": "0"}), message("low", later)
    )
    assert shard_of(at_once) == shard_of(low) != shard_of(urgent)
    found: list[Json] = []
    while len(found) < 3:
        found += await rest.pull(wait=True)
    assert {text(m): m["message"]["messageId"] for m in found} == {"at once": at_once, "urgent": urgent, "low": low}


async def test_another_priority_is_another_message(rest: Rest) -> None:
    await rest.create_topic(extensions={"priorities": 3, "deduplication": {"window": "600s"}, "shards": 2})
    await rest.create_subscription()

    def named(id_: str, level: int | None = None) -> Json:
        said = {} if level is None else {"broker-priority": str(level)}
        return message(id_, {"broker-dedup-id": id_, **said})

    batch = [named("a"), named("a", 0), named("b", 1), named("a", 1), named("c"), named("a", 0)]
    ids = await rest.publish(*batch)
    assert len(set(ids)) == 5
    assert ids[1] == ids[5]
    assert await rest.publish(*batch) == ids
    assert await rest.publish(named("a", 2)) == [ids[0]]
    assert sorted(await one_by_one(rest)) == ["a", "a", "a", "b", "c"]


async def test_one_that_stands_in_anothers_place_has_its_own(rest: Rest) -> None:
    await rest.create_topic(extensions={"priorities": 2})
    await rest.create_subscription()
    low, _ = await rest.publish("low", "another")
    body = {"messageId": low, "message": of_level("urgent now", 0)}
    await rest.ok("POST", f"{rest.topic()}:replace", body)
    assert await one_by_one(rest) == ["urgent now", "another"]


async def test_another_broker_hears_of_it(database_url: str) -> None:
    brokers = [Broker(AppConfig(database_url=database_url)) for _ in range(2)]

    async def hears_of_levels() -> bool:
        return bool((await brokers[1].core.resources.topic("projects/p/topics/topic")).levels)

    async with running_in_process(brokers[0]) as first, running_in_process(brokers[1]) as second:
        one, other = (Rest(client, "projects/p") for client in (first, second))
        await one.create_topic()
        await one.create_subscription()
        await other.publish("known")
        assert await one_by_one(other) == ["known"]
        await change(one, {"priorities": 2})
        await eventually(hears_of_levels)
        await other.publish("-", of_level("urgent", 0))
        assert await one_by_one(other) == ["urgent", "-"]
        await other.publish("-", of_level("urgent", 0))
        assert await one_by_one(one) == ["urgent", "-"]


async def test_what_has_waited_long_enough_goes_beside_what_is_urgent(rest: Rest) -> None:
    aged = {"priorities": {"levels": 2, "age": "86400s"}}
    assert (await rest.create_topic(extensions=aged))["extensions"] == aged
    await rest.create_subscription()
    await rest.publish(*(of_level("urgent", 0) for _ in range(100)), *["low"] * 5)
    assert [text(m) for _ in range(5) for m in await rest.pull(max_messages=1)] == ["urgent"] * 5
    await change(rest, {"priorities": {"levels": 2, "age": "0.100s"}})
    found: list[str] = []
    while found.count("low") < 5:
        found += [text(m) for m in await rest.pull(max_messages=1)]
    assert 4 <= found.count("urgent") < 95  # by turns


async def test_levels_share_by_weight(rest: Rest) -> None:
    weighed = {"priorities": {"levels": 3, "weights": [4, 2, 1]}}
    assert (await rest.create_topic(extensions=weighed))["extensions"] == weighed
    await rest.create_subscription()
    await rest.publish(*(of_level(str(level), level) for level in (2, 1, 0) for _ in range(20)))
    found = [text(m) for _ in range(14) for m in await rest.pull(max_messages=1)]
    assert [found.count(level) for level in "012"] == [8, 4, 2]
    assert found[:3] == ["0", "1", "2"]
    await change(rest, {"priorities": 3})
    assert [text(m) for _ in range(3) for m in await rest.pull(max_messages=1)] == ["0", "0", "0"]


URGENT: Json = {"push": {"urgent": True}}


async def test_a_subscription_is_urgent_until_it_is_said_to_be_so_no_more(rest: Rest) -> None:
    await rest.create_topic()
    hook = {"pushEndpoint": "http://127.0.0.1:9/"}
    assert (await rest.create_subscription(pushConfig=hook, extensions=URGENT))["extensions"] == URGENT
    name = rest.subscription()
    wrong = {"topic": rest.topic(), "extensions": {"push": {"urgent": "soon"}}}
    code, why = await rest.error("PUT", rest.subscription("other"), wrong)
    assert (code, "extensions.push.urgent" in why) == ("INVALID_ARGUMENT", True)
    for body, mask, urgent in (
        ({"ackDeadlineSeconds": 20}, "ackDeadlineSeconds", True),
        ({"extensions": {"push": {"urgent": False, "maxOutstandingRequests": 2}}}, "extensions", False),
        ({"extensions": URGENT}, "extensions", True),
        ({"pushConfig": {}}, "pushConfig", True),  # kept until there is an endpoint again
        ({"extensions": {}}, "extensions", False),
    ):
        changed = await rest.ok("PATCH", name, {"subscription": body, "updateMask": mask})
        assert changed.get("extensions", {}).get("push", {}).get("urgent", False) is urgent
        assert (await rest.ok("GET", name)) == changed
