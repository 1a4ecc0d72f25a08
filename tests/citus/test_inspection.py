"""What looks, over REST, on topics whose shards lie on both workers: it tells what it does on one server."""

from typing import Any

from broker.features.events import rows as events
from tests.citus.test_serving import make_database
from tests.fixtures.broker import Json, Rest, eventually, message, text
from tests.fixtures.citus import NEEDS_CITUS
from tests.fixtures.metrics import scrape

pytestmark = NEEDS_CITUS

_SHARDS: Json = {"shards": 4}


async def _publish(rest: Rest, count: int, topic: str = "topic") -> list[str]:
    """In calls of their own, so that each shard has some."""
    return [id_ for number in range(count) for id_ in await rest.publish(f"{number}", topic=topic)]


async def _lag(rest: Rest, name: str = "sub") -> Json:
    attribution = await rest.ok("GET", f"{rest.project}/lag?fresh=true")
    [lag] = [each for each in attribution["subscriptions"] if each["subscription"] == rest.subscription(name)]
    return dict(lag)


async def test_lags_of_a_project_are_those_of_all_shards(rest: Rest) -> None:
    await rest.create_topic(extensions=_SHARDS)
    await rest.create_subscription()
    await rest.create_subscription("odd", filter='attributes.kind = "odd"')
    await rest.create_subscription("ordered", enableMessageOrdering=True)
    keyed = [{**message(f"{number}", {"kind": "even"}), "orderingKey": f"k{number % 4}"} for number in range(8)]
    for each in [*keyed, message("8", {"kind": "odd"})]:
        await rest.publish(each)
    lag = await _lag(rest)
    assert (lag["undeliveredMessages"], lag["outstandingMessages"]) == (9, 0)
    assert (await _lag(rest, "odd"))["undeliveredMessages"] == 1
    received = await eventually(lambda: rest.pull(max_messages=3))
    lag = await _lag(rest)
    assert lag["outstandingMessages"] == len(received)
    assert lag["undeliveredMessages"] == 9
    await rest.acknowledge(received)
    await rest.acknowledge(await rest.drain())
    assert (await _lag(rest))["undeliveredMessages"] == 0
    [first, *_] = await eventually(lambda: rest.pull("ordered", max_messages=1))
    await rest.modify_ack_deadline([first], 0, "ordered")
    assert (await _lag(rest, "ordered"))["undeliveredMessages"] == 9


async def _report(rest: Rest, message_id: str) -> Json:
    [report] = (await rest.ok("GET", f"{rest.topic()}/messages/{message_id}"))["subscriptions"]
    return dict(report)


async def test_what_became_of_messages_and_the_dead_letters_among_them(rest: Rest) -> None:
    await rest.create_topic(extensions=_SHARDS)
    await rest.create_topic("letters", extensions=_SHARDS)
    await rest.create_subscription("pile", "letters")
    policy = {"deadLetterTopic": rest.topic("letters"), "maxDeliveryAttempts": 5}
    await rest.create_subscription(deadLetterPolicy=policy)
    ids = await _publish(rest, 8)
    assert {(await _report(rest, id_))["state"] for id_ in ids} == {"WAITING"}
    received = await _all(rest, 8)
    given_up, rest_of_them = received[:6], received[6:]
    await rest.acknowledge(rest_of_them)
    await rest.ok("POST", f"{rest.subscription()}:reject", {"ackIds": [each["ackId"] for each in given_up]})
    path = f"{rest.subscription()}/deadLetters"

    async def counted() -> bool:
        return bool((await rest.ok("GET", path, params={"groupBy": "reason"})).get("deadLetterCount") == 6)

    await eventually(counted)
    [group] = (await rest.ok("GET", path, params={"groupBy": "reason"}))["groups"]
    assert (group["key"], group["count"]) == ("reject", 6)
    pages, params = [], {"pageSize": 4}
    while True:
        page = await rest.ok("GET", path, params=params)
        pages += page.get("deadLetters", [])
        if not page.get("nextPageToken"):
            break
        params["pageToken"] = page["nextPageToken"]
    assert sorted(_data(dead_letter) for dead_letter in pages) == sorted(text(each) for each in given_up)
    by_id = {each["message"]["messageId"]: each for each in received}
    states = {id_: (await _report(rest, id_))["state"] for id_ in by_id}
    assert sorted(states.values()) == ["ACKNOWLEDGED"] * 2 + ["DEAD_LETTERED"] * 6
    await rest.acknowledge(await _all(rest, 6, "pile"), "pile")
    answer = await rest.ok("GET", path, params={"groupBy": "reason"})
    assert (answer.get("deadLetterCount", 0), answer["settledDeadLetterCount"]) == (0, 6)


def _data(dead_letter: Any) -> str:
    return text({"message": dead_letter["message"]} if "message" in dead_letter else {"message": dead_letter})


async def _all(rest: Rest, count: int, name: str = "sub") -> list[Json]:
    received: list[Json] = []

    async def pull() -> bool:
        received.extend(await rest.pull(name))
        return len(received) >= count

    await eventually(pull)
    return received


async def test_what_waits_for_its_time_is_listed_in_the_order_of_times_in_pages(rest: Rest) -> None:
    await rest.create_topic(extensions=_SHARDS | {"delay": True})
    delays = [300, 100, 500, 200, 400]
    ids = [(await rest.publish(message("", {"broker-delay": f"{delay}s"})))[0] for delay in delays]
    in_order = [id_ for _, id_ in sorted(zip(delays, ids, strict=True))]
    first = await rest.ok("GET", f"{rest.topic()}/scheduled", params={"pageSize": 3})
    rest_of_it = {"pageToken": first["nextPageToken"]}
    second = await rest.ok("GET", f"{rest.topic()}/scheduled", params=rest_of_it)
    listed = [*first["scheduledMessages"], *second["scheduledMessages"]]
    assert [each["messageId"] for each in listed] == in_order


async def test_what_a_project_retains_is_counted_and_limited(rest: Rest) -> None:
    await rest.create_topic(extensions=_SHARDS)
    await rest.create_subscription()
    for _ in range(6):
        await rest.publish("x" * 100)
    await _limit(rest, 600)
    body = {"messages": [message("x")]}
    refused = await rest.call("POST", f"{rest.topic()}:publish", body)
    assert refused.status_code == 429, refused.text
    assert "is at 600 of 600 (bytes)" in refused.json()["error"]["message"]
    await rest.acknowledge(await _all(rest, 6))
    await _limit(rest, 500)
    await rest.ok("POST", f"{rest.topic()}:publish", body)


async def _limit(rest: Rest, size: int) -> None:
    """It looks then."""
    await rest.ok("PATCH", f"{rest.project}/quotas", {"limits": {"retainedBytes": size}})


async def test_a_scrape_has_what_logs_take_and_what_subscriptions_lag(rest: Rest) -> None:
    await rest.create_topic(extensions=_SHARDS)
    await rest.create_subscription()
    for _ in range(6):
        await rest.publish("x" * 100)
    project = rest.project.removeprefix("projects/")

    async def attribution() -> bool:
        scraped = await scrape(rest.client)
        sub = {"project": project, "subscription": "sub"}
        return (
            scraped.get("pubsub_subscription_num_undelivered_messages", **sub) == 6
            and scraped.get("pubsub_topic_retained_bytes", project=project, topic="topic") == 600
        )

    await eventually(attribution, seconds=60)


async def test_what_events_are_told_of_is_found(served_url: str) -> None:
    async with make_database(served_url) as (database, now), database.transaction() as connection:
        topic = "projects/told/topics/events"
        await events.write_event_topic(connection, project="projects/told", topic=topic, now=now - 2 * events.LATE)
        assert await events.find_conditions(connection, now=now) == []
        await events.write_event_topic(connection, project="projects/told", topic="", now=now)
