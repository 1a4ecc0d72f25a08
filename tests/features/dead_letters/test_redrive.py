"""Redrive over REST: dead letters go back to the subscription that gave them up, and to nobody else (G2)."""

from datetime import timedelta
from typing import Any

import pytest

from broker.app.broker import Broker
from broker.app.config import AppConfig
from tests.fixtures.access import StoppedClock
from tests.fixtures.broker import Json, Rest, eventually, message, text

pytestmark = pytest.mark.own_broker


@pytest.fixture
def broker(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Broker:
    """A message becomes a dead letter after one delivery attempt; tests set the clock ahead."""
    monkeypatch.setattr(StoppedClock, "ahead", timedelta(0))
    config = AppConfig(database_url=database_url, min_delivery_attempts=1, dead_letter_interval_seconds=0.05)
    return Broker(config, make_clock=StoppedClock)


async def _give_up(
    rest: Rest, *messages: str | Json, topic_extensions: Json | None = None, **fields: Any
) -> list[str]:
    """A subscription, a bystander, and messages that are dead letters of the first; their ids."""
    await rest.create_topic(extensions=topic_extensions or {})
    await rest.create_topic("dead")
    await rest.create_subscription("dead-sub", "dead", enableMessageOrdering=bool(fields))
    policy = {"deadLetterTopic": rest.topic("dead"), "maxDeliveryAttempts": 1}
    await rest.create_subscription(deadLetterPolicy=policy, **fields)
    await rest.create_subscription("bystander")
    ids = [id_ for each in messages for id_ in await rest.publish(each)]  # of one key at a time
    await rest.drain("bystander")
    await _fail_all(rest, len(ids))
    return ids


async def _fail_all(rest: Rest, count: int) -> None:
    async def failed() -> bool:
        received = await rest.pull(max_messages=1000)
        if received:
            await rest.modify_ack_deadline(received, 0)
        return await _dead_letters(rest) == count

    await eventually(failed)


async def _dead_letters(rest: Rest) -> int:
    position = await rest.ok("GET", f"{rest.subscription('dead-sub')}/snapshot")
    return int(position["undeliveredMessages"])


async def _redrive(rest: Rest, **body: object) -> Json:
    """Until it has ended."""
    started = await rest.ok("POST", f"{rest.subscription()}:redrive", body)
    return await rest.ok("POST", f"{started['name']}:wait", {"timeout": "30s"})


async def test_what_was_given_up_comes_back_under_its_first_id_and_to_nobody_else(rest: Rest) -> None:
    ids = await _give_up(rest, *(message(f"m{n}", {"n": str(n)}) for n in range(5)))
    ended = await _redrive(rest)
    assert ended["done"]
    assert ended["response"] == {"@type": "type.googleapis.com/broker.v1.RedriveResponse", "redriven": "5"}
    received = await rest.pull()
    assert [each["message"]["messageId"] for each in received] == ids
    assert [text(each) for each in received] == [f"m{n}" for n in range(5)]
    assert [each["message"]["attributes"] for each in received] == [{"n": str(n)} for n in range(5)]
    assert {each["deliveryAttempt"] for each in received} == {1}
    assert await rest.pull("bystander") == []
    assert await rest.pull("dead-sub") == []
    await rest.acknowledge(received)
    assert await rest.pull() == []
    assert (await _redrive(rest))["metadata"]["done"] == "0"


async def test_chosen_ones_come_back_and_the_others_stay_where_they_are(rest: Rest) -> None:
    await _give_up(rest, *(message(f"m{n}", {"n": str(n)}) for n in range(6)))
    await rest.acknowledge(list(await rest.pull("dead-sub", 1)), "dead-sub")  # m0 is dealt with
    assert (await _redrive(rest, filter='attributes.n = "2" OR attributes.n = "4"'))["metadata"]["done"] == "2"
    assert [text(each) for each in await rest.drain()] == ["m2", "m4"]
    dead_letters = await rest.pull("dead-sub")
    assert sorted(text(each) for each in dead_letters) == ["m1", "m3", "m5"]
    assert {each.get("deliveryAttempt", 0) for each in dead_letters} == {0}
    assert (await _redrive(rest, reasons=["deadline"]))["metadata"]["done"] == "0"
    started = await _redrive(rest)
    assert started["metadata"]["counts"] == {"outstanding": "3"}, "m0 is no dead letter any more"
    assert {each["reason"] for each in started["metadata"]["skipped"]} == {"outstanding"}
    assert await rest.pull() == []


async def test_a_message_that_is_named_comes_back_though_its_dead_letter_was_dealt_with(rest: Rest) -> None:
    first, second, third = await _give_up(rest, "m0", "m1", "m2")
    dead_letters = await rest.drain("dead-sub")
    assert (await _redrive(rest, messageIds=[second, dead_letters[2]["message"]["messageId"]]))["response"][
        "redriven"
    ] == "2"
    assert [each["message"]["messageId"] for each in await rest.drain()] == [second, third]
    assert first not in {second, third}


@pytest.mark.parametrize("has_been_tried", [False, True])
@pytest.mark.parametrize("key", ["", "k"])
async def test_what_was_sought_back_and_has_expired_since_is_delivered_all_the_same(
    rest: Rest, key: str, has_been_tried: bool
) -> None:
    expiring = [
        message(f"m{n}", {"broker-ttl": "3600s"}, **({"orderingKey": key} if key else {})) for n in range(3)
    ]
    options = {"enableMessageOrdering": True} if key else {}
    ids = await _give_up(rest, *expiring, topic_extensions={"expiry": True}, retainAckedMessages=True, **options)
    change = {"subscription": {}, "updateMask": "deadLetterPolicy"}
    await rest.ok("PATCH", rest.subscription(), change)
    await rest.ok("POST", f"{rest.subscription()}:seek", {"time": "2020-01-01T00:00:00Z"})
    if has_been_tried:
        received = await rest.pull()
        assert [text(each) for each in received] == ["m0", "m1", "m2"]
        await rest.modify_ack_deadline(received, 0)
    StoppedClock.ahead = timedelta(hours=2)
    ended = await _redrive(rest)
    assert ended["metadata"]["counts"] == {"redriven": "3"}
    received = await rest.drain()
    assert [each["message"]["messageId"] for each in received] == ids
    assert (await rest.drain(), await rest.drain("dead-sub")) == ([], [])


async def test_the_order_of_a_key_is_kept_and_its_next_messages_wait(rest: Rest) -> None:
    keyed = [message(f"{key}{n}", orderingKey=key) for n in range(4) for key in "ab"]
    await _give_up(rest, *keyed, message("plain"), enableMessageOrdering=True)
    await rest.publish(message("a4", orderingKey="a"))
    out = await rest.pull()
    assert [text(each) for each in out] == ["a4"]
    assert (await _redrive(rest))["response"]["redriven"] == "9"
    others = await rest.pull()
    assert [text(each) for each in others if text(each)[0] == "b"] == ["b0", "b1", "b2", "b3"]
    assert sorted(text(each) for each in others)[-1] == "plain"
    assert not [each for each in others if text(each)[0] == "a"]
    await rest.acknowledge(out)
    keys = await rest.pull()
    assert [text(each) for each in keys] == ["a0", "a1", "a2", "a3"]
    assert {each["deliveryAttempt"] for each in keys + others} == {1}
    await rest.acknowledge(keys + others)
    await rest.publish(message("a5", orderingKey="a"))
    assert [text(each) for each in await rest.drain()] == ["a5"]
    assert await rest.drain("dead-sub") == []


async def test_keys_of_an_ordered_pile_go_on_without_what_was_taken_out(rest: Rest) -> None:
    keyed = [message(f"{key}{n}", {"n": str(n)}, orderingKey=key) for n in range(4) for key in "ab"]
    await _give_up(rest, *keyed, enableMessageOrdering=True)
    await rest.modify_ack_deadline(await rest.pull("dead-sub", 1), 0, "dead-sub")  # a0 comes back to the pile
    assert (await _redrive(rest, filter='attributes.n = "0" OR attributes.n = "2"'))["response"]["redriven"] == "4"
    assert sorted(text(each) for each in await rest.drain("dead-sub")) == ["a1", "a3", "b1", "b3"]
    assert sorted(text(each) for each in await rest.drain()) == ["a0", "a2", "b0", "b2"]


async def test_nothing_is_changed_by_a_validation(rest: Rest) -> None:
    await _give_up(rest, "m0", "m1")
    plan = await rest.ok("POST", f"{rest.subscription()}:redrive", {"validateOnly": True})
    assert (plan["done"], plan["response"]["chosen"], "name" in plan) == (True, "2", False)
    assert plan["metadata"]["takenFrom"] == [rest.subscription("dead-sub")]
    assert await rest.ok("GET", f"{rest.project}/operations") == {}
    assert (await rest.pull(), len(await rest.pull("dead-sub"))) == ([], 2)


async def test_as_many_are_redriven_or_discarded_as_were_expected_or_none(rest: Rest) -> None:
    await _give_up(rest, "m0", "m1", "m2")
    redrive, discard = f"{rest.subscription()}:redrive", f"{rest.subscription()}:discard"
    plan = (await rest.ok("POST", redrive, {"validateOnly": True}))["metadata"]
    assert (plan["count"], plan["unit"], "estimated" in plan) == (3, "message", False)
    chosen = {"reasons": ["nack"]}
    assert (await rest.ok("POST", discard, chosen | {"validateOnly": True}))["count"] == 3
    for path, body in ((redrive, {}), (discard, chosen)):
        code, why = await rest.error("POST", path, body | {"expectedCount": 2, "tolerancePercent": 49})
        assert (code, "count=3, expectedCount=2" in why) == ("ABORTED", True)
        before = await rest.error("POST", path, body | {"expectedCount": 3, "asOf": "2020-01-01T00:00:00Z"})
        assert (before[0], "count=0, expectedCount=3" in before[1]) == ("ABORTED", True)
    assert await rest.ok("GET", f"{rest.project}/operations") == {}
    limits = {"expectedCount": 2, "tolerancePercent": 50, "asOf": plan["asOf"]}
    await rest.acknowledge(await rest.pull("dead-sub", 1), "dead-sub")
    assert (await _redrive(rest, **limits))["response"]["redriven"] == "2"
    assert len(await rest.drain()) == 2


async def test_one_that_is_slow_is_cancelled_and_what_it_did_stays_done(rest: Rest) -> None:
    await _give_up(rest, *(f"m{n}" for n in range(20)))
    body = {"maxMessagesPerSecond": 0.01}
    started = await rest.ok("POST", f"{rest.subscription()}:redrive", body)
    name = started["name"]
    assert (started["done"], started["metadata"]["total"]) == (False, "20")

    async def has_begun() -> bool:
        return bool((await rest.ok("GET", name))["metadata"]["done"] == "1")

    await eventually(has_begun)
    assert await rest.error("DELETE", name) == (
        "FAILED_PRECONDITION",
        f"The operation is under way: cancel it first (resource={name.rpartition('/')[2]}).",
    )
    assert await rest.ok("POST", f"{name}:cancel", {}) == {}
    ended = await rest.ok("POST", f"{name}:wait", {"timeout": "30s"})
    assert (ended["done"], ended["error"]["code"], ended["metadata"]["state"]) == (True, 1, "CANCELLED")
    assert [text(each) for each in await rest.pull()] == ["m0"]
    assert len(await rest.drain("dead-sub")) == 19
    [listed] = (await rest.ok("GET", f"{rest.project}/operations"))["operations"]
    assert listed == ended
    assert await rest.ok("DELETE", name) == {}
    assert (await rest.error("GET", name))[0] == "NOT_FOUND"
    assert (await rest.error("POST", f"{name}:cancel", {}))[0] == "NOT_FOUND"


async def test_a_project_has_so_many_at_once(rest: Rest) -> None:
    await _give_up(rest, *(f"m{n}" for n in range(12)))
    slow = {"maxMessagesPerSecond": 0.01}
    names = [(await rest.ok("POST", f"{rest.subscription()}:redrive", slow))["name"] for _ in range(10)]
    assert names == sorted(names)
    code, said = await rest.error("POST", f"{rest.subscription()}:redrive", slow)
    assert (code, ":wait" in said, "--operations-at-once" in said) == ("RESOURCE_EXHAUSTED", True, True)
    page = await rest.ok("GET", f"{rest.project}/operations", params={"pageSize": 7})
    rest_of = await rest.ok(
        "GET", f"{rest.project}/operations", params={"pageSize": 7, "pageToken": page["nextPageToken"]}
    )
    assert [each["name"] for each in page["operations"] + rest_of["operations"]] == names


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"filter": "attributes.n ="}, "filter"),
        ({"messageIds": ["x"]}, "messageId=x"),
        ({"maxMessagesPerSecond": 0}, "maxMessagesPerSecond=0"),
        ({"startTime": "yesterday"}, "startTime"),
        ({"startTime": "2026-01-02T00:00:00Z", "endTime": "2026-01-01T00:00:00Z"}, "startTime"),
        ({"target": "t"}, "name=t"),
    ],
)
async def test_what_cannot_be_meant_is_refused(rest: Rest, body: Json, said: str) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    code, why = await rest.error("POST", f"{rest.subscription()}:redrive", body)
    assert (code, said in why) == ("INVALID_ARGUMENT", True), why
    assert (await rest.error("POST", f"{rest.subscription('none')}:redrive", {}))[0] == "NOT_FOUND"


async def test_what_came_back_is_looked_at_as_what_waits(rest: Rest) -> None:
    first, second = await _give_up(rest, "m0", "m1")
    await _redrive(rest, messageIds=[first])
    [listed] = (await rest.ok("GET", f"{rest.subscription()}/messages"))["messages"]
    assert (listed["message"]["messageId"], listed["state"], listed["deliveryAttempt"]) == (first, "WAITING", 0)
    reports = [await rest.ok("GET", f"{rest.subscription()}/messages/{id_}") for id_ in (first, second)]
    assert [report["state"] for report in reports] == ["WAITING", "DEAD_LETTERED"]
    assert reports[0]["verdict"].startswith("It was redriven from the dead-letter topic")
    assert [entry["event"] for entry in reports[0]["timeline"]] == ["DEAD_LETTERED", "REDRIVEN"]


async def test_dead_letters_are_sent_to_another_topic_as_new_messages_and_nothing_comes_back(rest: Rest) -> None:
    keyed = [message(f"{key}{n}", {"n": str(n)}, orderingKey=key) for n in range(3) for key in "ab"]
    ids = await _give_up(rest, *keyed, enableMessageOrdering=True)
    await rest.create_topic("elsewhere")
    await rest.create_subscription("reader", "elsewhere", enableMessageOrdering=True)
    plan = await rest.ok(
        "POST", f"{rest.subscription()}:redrive", {"target": rest.topic("elsewhere"), "validateOnly": True}
    )
    assert (plan["response"]["chosen"], plan["metadata"]["targetTopic"]) == ("6", rest.topic("elsewhere"))
    ended = await _redrive(rest, target=rest.topic("elsewhere"))
    assert ended["response"] == {"@type": "type.googleapis.com/broker.v1.RedriveResponse", "sent": "6"}
    received = await rest.drain("reader")
    assert {each["message"]["messageId"] for each in received}.isdisjoint(ids)
    for key in "ab":
        of_key = [each["message"] for each in received if each["message"]["orderingKey"] == key]
        assert [one["attributes"] for one in of_key] == [{"n": str(n)} for n in range(3)]
    assert (await rest.pull(), await rest.pull("dead-sub"), await rest.pull("bystander")) == ([], [], [])
    report = await rest.ok("GET", f"{rest.subscription()}/messages/{ids[0]}")
    assert (report["state"], report["verdict"].startswith(f"It was redriven to {rest.topic('elsewhere')} at ")) == (
        "WITHDRAWN",
        True,
    )
    assert (await _redrive(rest))["metadata"]["done"] == "0"


@pytest.mark.parametrize("target", ["", "elsewhere"])
async def test_what_was_retracted_neither_comes_back_nor_is_sent(rest: Rest, target: str) -> None:
    _, retracted = await _give_up(rest, "kept", "retracted")
    await rest.create_topic("elsewhere")
    await rest.create_subscription("reader", "elsewhere")
    await rest.ok("POST", f"{rest.topic()}:retract", {"messageIds": [retracted]})
    ended = await _redrive(rest, **({"target": rest.topic(target)} if target else {}))
    assert ended["metadata"]["counts"] == {"sent" if target else "redriven": "1", "retracted": "1"}
    assert ended["metadata"]["skipped"] == [{"messageId": retracted, "reason": "retracted"}]
    assert [text(each) for each in await rest.drain("reader" if target else "sub")] == ["kept"]
    report = await rest.ok("GET", f"{rest.subscription()}/messages/{retracted}")
    assert report["state"] == "DEAD_LETTERED", "so it was, before"


async def test_what_the_target_refuses_stays_a_dead_letter_and_is_named(rest: Rest) -> None:
    definition = {
        "type": "AVRO",
        "definition": '{"type": "record", "name": "r", "fields": [{"name": "n", "type": "int"}]}',
    }
    await rest.ok("POST", f"{rest.project}/schemas?schemaId=numbers", definition)
    body = {"schemaSettings": {"schema": f"{rest.project}/schemas/numbers", "encoding": "JSON"}}
    await rest.ok("PUT", rest.topic("strict"), body)
    await rest.create_subscription("reader", "strict")
    first, second = await _give_up(rest, '{"n": 1}', "plain")
    ended = await _redrive(rest, target=rest.topic("strict"))
    assert ended["metadata"]["counts"] == {"sent": "1", "refused": "1"}
    assert ended["metadata"]["skipped"] == [{"messageId": second, "reason": "refused"}]
    [sent] = await rest.drain("reader")
    assert (text(sent), sent["message"]["attributes"]["googclient_schemaencoding"]) == ('{"n": 1}', "JSON")
    assert (await _redrive(rest))["response"]["redriven"] == "1"
    assert [each["message"]["messageId"] for each in await rest.drain()] == [second]
    assert first != second


async def test_a_target_that_is_frozen_or_not_there_is_refused(rest: Rest) -> None:
    await _give_up(rest, "a")
    await rest.create_topic("elsewhere")
    await rest.ok("POST", f"{rest.topic('elsewhere')}:freeze", {})
    redrive = f"{rest.subscription()}:redrive"
    assert (await rest.error("POST", redrive, {"target": rest.topic("elsewhere")}))[0] == "FAILED_PRECONDITION"
    assert (await rest.error("POST", redrive, {"target": rest.topic("none")}))[0] == "NOT_FOUND"
    assert await _dead_letters(rest) == 1


async def test_what_is_urgent_comes_back_as_urgent_as_it_was(rest: Rest) -> None:
    levels = {"extensions": {"priorities": 2}}
    urgent = message("urgent", {"broker-priority": "0"})
    first, _ = await _give_up(rest, message("m0"), message("m1"))
    await rest.ok("PATCH", rest.topic(), {"topic": levels, "updateMask": "extensions"})
    [urgent_id] = await rest.publish(urgent)
    await _fail_all(rest, 3)
    await rest.publish("waits")
    await _redrive(rest)
    received = [each for _ in range(4) for each in await rest.pull(max_messages=1)]
    assert (received[0]["message"]["messageId"], text(received[0])) == (urgent_id, "urgent")
    assert sorted(map(text, received[1:])) == ["m0", "m1", "waits"]
    assert first in {each["message"]["messageId"] for each in received}
