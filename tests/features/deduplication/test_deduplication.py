"""Repeats of messages, over REST and gRPC, an extension of topics (J5)."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from google.pubsub_v1 import PublisherClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport

from broker.app.broker import Broker
from broker.app.config import AppConfig
from broker.core.process.database_clock import DatabaseClock
from broker.db.driver.database import Database
from tests.fixtures.broker import Json, Rest, eventually, message, text
from tests.fixtures.grpc import channel_to
from tests.fixtures.in_process import own_broker, running_in_process

ON = {"deduplication": {"window": "600s"}}
BY_CONTENT = {"deduplication": {"window": "600s", "content": True}}


class SteppedClock(DatabaseClock):
    """Runs as the database's, and so much ahead."""

    ahead = timedelta(0)

    def now(self) -> Any:
        return super().now() + self.ahead


@pytest.fixture
async def broker(database_url: str) -> Broker:
    def make_clock(database: Database) -> DatabaseClock:
        return SteppedClock(database)

    return Broker(AppConfig(database_url=database_url, shards_per_topic=1), make_clock=make_clock)


@pytest.fixture
async def clocked(broker: Broker) -> AsyncIterator[Rest]:
    async with running_in_process(broker) as client:
        yield Rest(client, "projects/p")


@pytest.fixture
async def sharded(database_url: str) -> AsyncIterator[Rest]:
    """Two brokers' worth of topics with four shards."""
    async with own_broker(database_url, shards_per_topic=4) as (_, rest):
        yield rest


def named(data: str, id_: str, **fields: Any) -> Json:
    return message(data, {"broker-dedup-id": id_} | fields.pop("attributes", {}), **fields)


async def drained(rest: Rest) -> dict[str, str]:
    return {each["message"]["messageId"]: text(each) for each in await rest.drain()}


async def test_the_answer_has_the_positions_of_repeats_and_nothing_where_there_are_none(
    rest: Rest, sharded: Rest
) -> None:
    for each in (rest, sharded):
        await each.create_topic(extensions=ON)
        path = f"{each.topic()}:publish"
        first = await each.ok("POST", path, {"messages": [named("first", "a"), named("other", "b")]})
        assert first.keys() == {"messageIds"}
        messages = [named("new", "c"), named("again", "a"), message("plain"), named("b", "b"), named("c", "c")]
        answer = await each.ok("POST", path, {"messages": messages})
        assert answer["repeats"] == [1, 3, 4]
        assert [answer["messageIds"][index] for index in (1, 3)] == first["messageIds"]


async def test_a_repeat_has_the_first_ones_id_and_is_not_stored(rest: Rest) -> None:
    assert (await rest.create_topic(extensions=ON))["extensions"] == ON
    await rest.create_subscription()
    [first, other] = await rest.publish(named("first", "a"), named("other", "b"))
    assert await rest.publish(named("again", "a")) == [first]
    [plain, again, new] = await rest.publish("plain", named("b again", "b"), named("new", "c"))
    assert again == other
    assert await drained(rest) == {first: "first", other: "other", plain: "plain", new: "new"}
    assert int(new) - int(first) == 3, "a repeat has no sequence of its own"


async def test_within_a_request_the_first_one_counts(rest: Rest) -> None:
    await rest.create_topic(extensions=ON)
    await rest.create_subscription()
    ids = await rest.publish(named("1", "a"), named("2", "b"), named("3", "a"), "4", named("5", "b"), "6")
    assert (ids[2], ids[4]) == (ids[0], ids[1])
    assert await drained(rest) == {ids[0]: "1", ids[1]: "2", ids[3]: "4", ids[5]: "6"}
    assert await rest.publish(named("1", "a"), named("2", "b"), named("3", "a")) == ids[:3]


async def test_requests_at_once_store_a_message_once(rest: Rest) -> None:
    await rest.create_topic(extensions=ON)
    await rest.create_subscription()
    requests = [[named(f"{n}", f"{n % 7}"), named(f"{n}", f"own {n}")] for n in range(100)]
    answers = await asyncio.gather(*(rest.publish(*request) for request in requests))
    of_seven = {n % 7: {answer[0] for k, answer in enumerate(answers) if k % 7 == n % 7} for n in range(7)}
    assert all(len(ids) == 1 for ids in of_seven.values())
    got = await rest.drain()
    assert len(got) == 107
    assert {each["message"]["messageId"] for each in got} == {id_ for answer in answers for id_ in answer}


async def test_an_ordering_key_is_a_part_of_it(rest: Rest) -> None:
    await rest.create_topic(extensions=ON)
    [none] = await rest.publish(named("m", "a"))
    [one] = await rest.publish(named("m", "a", orderingKey="1"))
    [two] = await rest.publish(named("m", "a", orderingKey="2"))
    assert len({none, one, two}) == 3
    assert await rest.publish(named("m", "a", orderingKey="1")) == [one]


async def test_on_other_topics_it_is_an_attribute_like_any(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_topic("other", extensions=ON)
    first, second = await rest.publish(named("m", "a"), named("m", ""))
    assert first != second
    assert await rest.publish(named("m", "a")) != [first]
    assert await rest.publish(named("m", "a"), topic="other") != [first]


async def test_by_choice_a_message_without_an_id_is_known_by_what_is_in_it(rest: Rest) -> None:
    await rest.create_topic(extensions=BY_CONTENT)
    [first] = await rest.publish(message("m", {"a": "1", "b": "2"}))
    assert await rest.publish(message("m", {"b": "2", "a": "1"})) == [first]
    traced = {
        "a": "1",
        "b": "2",
        "googclient_traceparent": "00-11111111111111111111111111111111-2222222222222222-01",
    }
    assert await rest.publish(message("m", traced)) == [first]
    others = [message("m", {"a": "1"}), message("m"), message("m", {"a": "1", "b": "3"}), message("n")]
    ids = await rest.publish(*others, message("m", {"a": "1", "b": "2"}, orderingKey=""), named("m", "m"))
    assert len({first, *ids}) == 6
    assert ids[4] == first
    await rest.create_topic("by-id", extensions=ON)
    assert len(set(await rest.publish("m", "m", topic="by-id"))) == 2


async def test_past_the_window_a_message_is_another_one(clocked: Rest, broker: Broker) -> None:
    await clocked.create_topic(extensions=ON)
    [first] = await clocked.publish(named("m", "a"))
    clock: Any = broker.core.clock
    clock.ahead = timedelta(seconds=590)
    assert await clocked.publish(named("m", "a")) == [first]
    clock.ahead = timedelta(seconds=601)
    [second] = await clocked.publish(named("m", "a"))
    assert second != first
    clock.ahead = timedelta(seconds=1100)
    assert await clocked.publish(named("m", "a")) == [second], "the newest one counts"


async def test_a_window_that_is_changed_counts_from_then_on(clocked: Rest, broker: Broker) -> None:
    await clocked.create_topic(extensions=ON)
    [first] = await clocked.publish(named("m", "a"))
    clock: Any = broker.core.clock
    clock.ahead = timedelta(seconds=60)
    for window, is_known in (("59s", False), ("86400s", True)):
        extensions = {"deduplication": {"window": window}}
        change = {"topic": {"extensions": extensions}, "updateMask": "extensions"}
        assert (await clocked.ok("PATCH", clocked.topic(), change))["extensions"] == extensions
        [id_] = await clocked.publish(named("m", "a"))
        assert (id_ == first) is is_known
        first = id_
    off = await clocked.ok("PATCH", clocked.topic(), {"topic": {}, "updateMask": "extensions"})
    assert "extensions" not in off
    assert await clocked.publish(named("m", "a")) != [first]


@pytest.mark.parametrize(
    ("messages", "named_in_it"),
    [
        ([named("m", "")], ("messages[0].attributes.broker-dedup-id", "empty")),
        (["m", named("m", "x" * 257)], ("messages[1].attributes.broker-dedup-id", "257")),
        ([named("m", "a", attributes={f"k{n}": "v" for n in range(10_000)})], ("messages[0]", "10001")),
        ([named("m", "x" * 2_000)], ("broker-dedup-id", "2000")),
        ([named("m", f"{n}") for n in range(1_001)], ("message_count", "1001")),
    ],
)
async def test_ids_that_cannot_be_are_refused_and_nothing_is_stored(
    rest: Rest, messages: list[str | Json], named_in_it: tuple[str, str]
) -> None:
    await rest.create_topic(extensions=ON)
    await rest.create_subscription()
    body = {"messages": [message(m) if isinstance(m, str) else m for m in messages]}
    code, why = await rest.error("POST", f"{rest.topic()}:publish", body)
    assert code == "INVALID_ARGUMENT"
    assert all(part in why for part in named_in_it), why
    assert len(why) < 500
    assert await rest.drain() == []


@pytest.mark.parametrize("window", ["0s", "0.500s", "-600s", "86401s", "600", "", "1e3s", "P1D"])
async def test_a_window_that_cannot_be_is_refused_by_name(rest: Rest, window: str) -> None:
    asked = {"extensions": {"deduplication": {"window": window}}}
    code, why = await rest.error("PUT", rest.topic(), asked)
    assert (code, "extensions.deduplication.window" in why, window in why) == ("INVALID_ARGUMENT", True, True)
    assert (await rest.error("GET", rest.topic()))[0] == "NOT_FOUND"


@pytest.mark.parametrize("known", [{}, {"window": 600}, {"window": "600s", "contents": True}, True])
async def test_what_it_is_not_made_of_is_refused(rest: Rest, known: Any) -> None:
    code, why = await rest.error("PUT", rest.topic(), {"extensions": {"deduplication": known}})
    assert (code, "extensions.deduplication" in why) == ("INVALID_ARGUMENT", True)


async def test_a_repeat_of_what_is_to_come_later_has_its_id(rest: Rest) -> None:
    await rest.create_topic(extensions={"delay": True, **ON})
    await rest.create_subscription()
    later = {"broker-delay": "3600s"}
    request = [named("later", "a", attributes=later), named("now", "b"), named("then", "c", attributes=later), "x"]
    ids = await rest.publish(*request)
    assert len({*ids}) == 4
    assert await rest.publish(*request[2::-1]) == ids[2::-1]
    assert await rest.publish(named("now", "a")) == ids[:1]
    listed = await rest.ok("GET", f"{rest.topic()}/scheduled")
    assert [each["messageId"] for each in listed["scheduledMessages"]] == [ids[0], ids[2]]
    assert await drained(rest) == {ids[1]: "now", ids[3]: "x"}
    at_once = {"deliverTime": "2020-01-01T00:00:00Z"}
    await rest.ok("PATCH", f"{rest.topic()}/scheduled/{ids[0]}", at_once)
    received: dict[str, str] = await eventually(lambda: drained(rest))
    assert received == {ids[0]: "later"}
    assert await rest.publish(named("late", "a")) == ids[:1], "also when it has come"
    await rest.ok("DELETE", f"{rest.topic()}/scheduled/{ids[2]}")
    assert await rest.publish(named("then", "c")) == ids[2:3], "and when it never will"
    assert await drained(rest) == {}


async def test_what_a_transform_drops_is_known_too(rest: Rest) -> None:
    code = 'function f(m) { return m.attributes["drop"] ? null : m; }'
    transform = {"javascriptUdf": {"functionName": "f", "code": code}}
    await rest.create_topic(extensions=ON, messageTransforms=[transform])
    await rest.create_subscription()
    request = [named("1", "a"), named("2", "b", attributes={"drop": "1"}), named("3", "c"), named("4", "b")]
    ids = await rest.publish(*request)
    assert (len({*ids}), ids[3]) == (3, ids[1])
    assert await rest.publish(*request) == ids
    assert await rest.publish(named("5", "b")) == [ids[1]]
    assert await drained(rest) == {ids[0]: "1", ids[2]: "3"}


async def test_a_topic_with_several_shards_knows_them_whichever_process_is_asked(
    sharded: Rest, database_url: str
) -> None:
    await sharded.create_topic(extensions=ON)
    await sharded.create_subscription()
    request = [named(f"{n}", f"{n}") for n in range(40)] + ["without"]
    async with running_in_process(Broker(AppConfig(database_url=database_url, shards_per_topic=4))) as client:
        both = (sharded, Rest(client, "projects/p"))
        answers = await asyncio.gather(*(rest.publish(*request) for rest in both for _ in range(3)))
    assert {tuple(ids[:40]) for ids in answers} == {tuple(answers[0][:40])}
    assert len({int(id_) // 10**15 for id_ in answers[0]}) == 4, "it uses all of them"
    assert sorted(text(each) for each in await sharded.drain()) == sorted(
        [f"{n}" for n in range(40)] + ["without"] * 6
    )


async def test_a_purge_forgets_what_was_published(rest: Rest) -> None:
    await rest.create_topic(extensions=ON)
    await rest.create_subscription()
    [first] = await rest.publish(named("m", "a"))
    await rest.ok("POST", f"{rest.topic()}:purge")
    [second] = await rest.publish(named("m", "a"))
    assert second != first
    assert await drained(rest) == {second: "m"}


async def test_repeats_are_counted_and_not_among_what_is_stored(rest: Rest) -> None:
    await rest.create_topic(extensions=ON)
    await rest.publish(named("m", "a"), named("m", "b"))
    await rest.publish(named("m", "a"), named("m", "c"), named("m", "c"))
    metrics = (await rest.client.get("/metrics")).text
    labels = f'{{project="{rest.project.removeprefix("projects/")}",topic="topic"}}'
    assert f"pubsub_topic_published_messages_total{labels} 3" in metrics
    assert f"pubsub_topic_repeated_messages_total{labels} 2" in metrics


async def test_stock_clients_of_grpc_have_it_by_an_attribute(rest: Rest) -> None:
    await rest.create_topic(extensions=ON)

    def publish() -> list[str]:
        with channel_to(str(rest.client.base_url).rstrip("/")) as channel:
            client = PublisherClient(transport=PublisherGrpcTransport(channel=channel))
            sent = {"data": b"m", "attributes": {"broker-dedup-id": "a"}}
            asked = {"topic": rest.topic(), "messages": [sent, sent]}
            return [id_ for _ in range(2) for id_ in client.publish(request=asked).message_ids]

    assert len(set(await asyncio.to_thread(publish))) == 1
