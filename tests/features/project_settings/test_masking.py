"""No call that shows messages shows a masked value to a caller without the permission to see it."""

import base64
import binascii
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any

import httpx
import pytest
import pytest_asyncio

from tests.fixtures.access import Guarded, guarded
from tests.fixtures.broker import Json, eventually
from tests.fixtures.registered import ROUTES

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROJECT = "projects/guarded"
TOPIC, DEAD = f"{PROJECT}/topics/payments", f"{PROJECT}/topics/payments-dead"
LATER = f"{PROJECT}/topics/payments-later"
SUBSCRIPTION, READER = f"{PROJECT}/subscriptions/ledger", f"{PROJECT}/subscriptions/dead-reader"
CARD, TOKEN, PLAIN = "4111-SECRET-CARD", "SECRET-TOKEN", "plain-text"
RULE = {"topics": ["payments*"], "attributes": ["token*"], "fields": ["$.card", "$..pin"]}
BODY = json.dumps({"card": CARD, "shop": {"pin": CARD}, "note": PLAIN, "total": 10})


@dataclass
class Shop:
    """A project with messages on a topic: in its log, to come, and dead-lettered."""

    broker: Guarded
    message_id: str
    scheduled_id: str
    headers: dict[str, dict[str, str]]  # of callers, by their role

    async def get(self, role: str, path: str, **query: str) -> httpx.Response:
        return await self.broker.call("GET", path, headers=self.headers[role], params=query)

    async def ok(self, role: str, path: str, **query: str) -> Json:
        response = await self.get(role, path, **query)
        assert response.status_code == 200, response.text
        found: Json = response.json()
        return found


VIEWER, ATTRIBUTES, MASKED = "viewer", "messageAttributesViewer", "messageViewer"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(clone: Callable[[], Any]) -> AsyncIterator[Shop]:
    with clone() as database_url:
        async with guarded(database_url, dead_letter_interval_seconds=0.1) as broker:
            headers = {"admin": broker.bearer()}
            for role in (VIEWER, ATTRIBUTES, MASKED, "subscriber"):
                account = await broker.account(f"some-{role.lower()}", role=f"roles/pubsub.{role}")
                headers[role] = broker.bearer(await broker.key(account))
            await broker.ok("PUT", TOPIC, {"messageRetentionDuration": "3600s"})
            await broker.ok("PUT", DEAD, {"messageRetentionDuration": "3600s"})
            await broker.ok("PUT", LATER, {"extensions": {"delay": True}})
            policy = {"deadLetterTopic": DEAD, "maxDeliveryAttempts": 5}
            await broker.ok("PUT", SUBSCRIPTION, {"topic": TOPIC, "deadLetterPolicy": policy})
            await broker.ok("PUT", READER, {"topic": DEAD})
            ids = [await publish(broker, TOPIC) for _ in range(2)]
            scheduled = await publish(broker, LATER, {"broker-delay": "86400s"})
            [received, _] = (await broker.ok("POST", f"{SUBSCRIPTION}:pull", {"maxMessages": 2}))[
                "receivedMessages"
            ]
            await broker.ok("POST", f"{SUBSCRIPTION}:reject", {"ackIds": [received["ackId"]]})
            schedule = {"topic": TOPIC, "interval": "86400s", "message": message()}
            await broker.ok("PUT", f"{PROJECT}/schedules/nightly", schedule)
            await broker.ok("PUT", f"{PROJECT}/messageTemplates/sale", {"topic": TOPIC, **message()})
            await broker.ok("PUT", f"{PROJECT}/maskingRules/cards", RULE)

            async def listed() -> Json:
                return (await broker.ok("GET", f"{SUBSCRIPTION}/deadLetters")).get("deadLetters", [])

            await eventually(listed)
            yield Shop(broker, ids[0], scheduled, headers)


def message(attributes: dict[str, str] | None = None, body: str = BODY) -> Json:
    data = base64.b64encode(body.encode()).decode()
    return {"data": data, "attributes": {"token-1": TOKEN, "shop": PLAIN} | (attributes or {})}


async def publish(broker: Guarded, topic: str, attributes: dict[str, str] | None = None, body: str = BODY) -> str:
    published = await broker.ok("POST", f"{topic}:publish", {"messages": [message(attributes, body)]})
    [message_id] = published["messageIds"]
    return str(message_id)


# --- every call ------------------------------------------------------------------------------------------------

BODIES: dict[str, Json] = {"TestFilter": {"includeData": True}, "TestFilterOfSubscription": {"includeData": True}}
# Calls that show a message, and whose own permission is another one.
OTHERS = {
    "FindMessage",
    *("GetSchedule", "ListSchedules", "PauseSchedule", "ResumeSchedule", "UpdateScheduled"),
    *("GetMessageTemplate", "ListMessageTemplates", "UpdateMessageTemplate"),
}


def paths(shop: Shop) -> Iterator[tuple[str, str, str, str]]:
    """The id, method, path and kind of every call that shows messages, on each resource that has some."""
    for route in ROUTES:
        if not (route.rpc.needs.instead or route.operation in OTHERS):
            continue
        for topic, subscription in ((TOPIC, SUBSCRIPTION), (DEAD, READER), (LATER, SUBSCRIPTION)):
            ids = {
                "projects": "guarded", "topics": topic.rpartition("/")[2], "schedules": "nightly",
                "subscriptions": subscription.rpartition("/")[2], "messageTemplates": "sale",
                "messages": shop.scheduled_id if topic == LATER else shop.message_id,
                "scheduled": shop.scheduled_id,
            }  # fmt: skip
            if route.operation == "TailTopic" and topic == LATER:
                continue  # where nothing comes
            path, colon, verb = route.path.partition(":")
            parts = path.split("/")
            parts = [ids[parts[at - 1]] if part == "*" else part for at, part in enumerate(parts)]
            yield route.operation, route.method, "/".join(parts), colon + verb


def texts(content: bytes) -> str:
    """All that an answer says, with what is in Base64."""
    found = content.decode(errors="replace")
    for piece in found.replace("\\", "").split('"'):
        try:
            found += base64.b64decode(piece, validate=True).decode(errors="replace")
        except (binascii.Error, ValueError):
            continue
    return found


async def answer(shop: Shop, role: str, operation: str, method: str, path: str) -> tuple[int, bytes]:
    headers = shop.headers[role]
    if operation == "TailTopic":
        tail = shop.broker.client.stream(
            "GET", f"/v1/{path}", headers=headers, params={"startTime": "2020-01-01T00:00:00Z"}
        )
        async with tail as response:
            content = b""
            async for chunk in response.aiter_bytes():
                content += chunk
                if response.status_code != 200 or b"event: message" in content:
                    break
            return response.status_code, content
    body = BODIES.get(operation)
    if operation == "UpdateScheduled":
        body = {"deliverTime": (shop.broker.now + timedelta(days=10)).strftime("%Y-%m-%dT%H:%M:%SZ")}
    if operation == "UpdateMessageTemplate":
        body = {"title": "A sale"}
    response = await shop.broker.call(method, path, body, headers=headers)
    return response.status_code, response.content


@pytest.mark.parametrize("role", [VIEWER, ATTRIBUTES, MASKED])
async def test_no_call_shows_what_a_rule_masks(shop: Shop, role: str) -> None:
    shown = set()
    for operation, method, path, verb in paths(shop):
        status, content = await answer(shop, role, operation, method, path + verb)
        assert status < 500, (operation, path, content)
        said = texts(content)
        assert not re.search(f"{CARD}|{TOKEN}", said), (operation, path, said)
        if status == 200 and PLAIN in said:
            shown.add(operation)
    if role != VIEWER:  # the same calls show what is not masked
        expected = {"ListTopicMessages", "GetMessage", "TailTopic", "ListDeadLetters", "ListProjectDeadLetters"}
        expected |= {"ListSubscriptionMessages", "TestFilter", "ListScheduled", "GetScheduled", "FindMessage"}
        assert expected <= shown


async def test_the_crawl_finds_each_value_where_the_caller_may_see_it(shop: Shop) -> None:
    """Else it would not find a call that shows too much."""
    found: dict[str, tuple[bool, bool]] = {}
    for operation, method, path, verb in paths(shop):
        _, content = await answer(shop, "admin", operation, method, path + verb)
        said, (card, token) = texts(content), found.get(operation, (False, False))
        found[operation] = card or CARD in said, token or TOKEN in said
    assert {operation for operation, seen in found.items() if seen != (True, True)} == {
        "GetMessageData",  # the data alone
        "ListScheduled",  # the attributes, and data if it is asked for
        "DecodeMessage",  # the topics have no schema: tests/features/schemas/test_decoding.py
    }


# --- single calls -----------------------------------------------------------------------------------------------


async def test_a_masked_message_says_what_is_hidden_by_which_rule_and_what_would_show_it(shop: Shop) -> None:
    found = await shop.ok(MASKED, f"{TOPIC}/messages/{shop.message_id}")
    assert found["masked"] == {
        "permission": "pubsub.messages.view",
        "rules": [f"{PROJECT}/maskingRules/cards"],
        "attributes": ["token-1"],
        "data": "FIELDS",
    }
    assert json.loads(base64.b64decode(found["message"]["data"])) == {
        "card": "[masked]", "shop": {"pin": "[masked]"}, "note": PLAIN, "total": 10,
    }  # fmt: skip
    assert found["message"]["attributes"] == {"token-1": "[masked]", "shop": PLAIN}
    assert found["dataSize"] == len(BODY)
    found = await shop.ok(ATTRIBUTES, f"{TOPIC}/messages/{shop.message_id}")
    assert "data" not in found["message"]
    assert found["masked"]["data"] == "ALL"
    assert found["message"]["attributes"] == {"token-1": "[masked]", "shop": PLAIN}


async def test_whoever_may_receive_messages_sees_them_whole(shop: Shop) -> None:
    for path in (f"{TOPIC}/messages/{shop.message_id}", f"{PROJECT}/messages/{shop.message_id}"):
        found = await shop.ok("subscriber", path) if "topics" in path else await shop.ok("admin", path)
        assert "masked" not in found
        assert base64.b64decode(found["message"]["data"]).decode() == BODY


async def test_a_preview_is_cut_after_it_is_masked(shop: Shop) -> None:
    for most in (1, 12, 25, 60, 10_000):
        [*messages] = (await shop.ok(MASKED, f"{TOPIC}/messages", previewBytes=str(most)))["messages"]
        for each in messages:
            data = base64.b64decode(each.get("data", "")).decode()
            assert len(data) <= most
            assert "4111" not in data
            assert '{"card":"[masked]"'.startswith(data) or data.startswith('{"card":"[masked]"')


async def test_a_range_of_data_is_of_what_the_caller_sees(shop: Shop) -> None:
    path = f"{TOPIC}/messages/{shop.message_id}:data"
    whole = await shop.get(MASKED, path)
    assert whole.status_code == 200
    assert CARD.encode() not in whole.content
    assert PLAIN.encode() in whole.content
    headers = shop.headers[MASKED] | {"Range": "bytes=2-5"}
    part = await shop.broker.call("GET", path, headers=headers)
    assert (part.status_code, part.content) == (206, whole.content[2:6])
    assert part.headers["content-range"] == f"bytes 2-5/{len(whole.content)}"
    last = await shop.broker.call("GET", path, headers=shop.headers[MASKED] | {"Range": "bytes=-4"})
    assert last.content == whole.content[-4:]
    refused = await shop.get(ATTRIBUTES, path)
    assert refused.status_code == 403
    assert "pubsub.topics.attachSubscription" in refused.text


@pytest.mark.parametrize(
    ("role", "query", "named"),
    [
        (MASKED, {"contains": "4111"}, "maskingRules/cards"),
        (MASKED, {"filter": 'attributes.token-1 = "SECRET-TOKEN"'}, "token-1"),
        (MASKED, {"filter": 'NOT (attributes.shop = "x" OR hasPrefix(attributes.token-1, "S"))'}, "token-1"),
        (MASKED, {"filter": 'body.card = "4111"'}, "maskingRules/cards"),
        (ATTRIBUTES, {"contains": "x"}, "pubsub.messages.viewMasked"),
        (ATTRIBUTES, {"filter": "body.total > 5"}, "pubsub.messages.viewMasked"),
    ],
)
async def test_a_search_does_not_tell_what_is_masked(
    shop: Shop, role: str, query: dict[str, str], named: str
) -> None:
    lists = [f"{TOPIC}/messages", f"{SUBSCRIPTION}/messages"]
    if "filter" in query:
        lists += [f"{SUBSCRIPTION}/deadLetters", f"{TOPIC}:tail"]
    for path in lists:
        refused = await shop.get(role, path, **query)
        assert refused.status_code == 403, (path, refused.text)
        assert named in refused.text
    if "filter" in query:
        for path in (TOPIC, SUBSCRIPTION):
            refused = await shop.broker.call("POST", f"{path}:testFilter", query, headers=shop.headers[role])
            assert refused.status_code == 403
            assert named in refused.text


async def test_dead_letters_are_not_grouped_or_chosen_by_a_masked_attribute(shop: Shop) -> None:
    for query in ({"groupBy": "attribute:token-1"}, {"attribute:token-1": "SECRET-TOKEN"}):
        refused = await shop.get(MASKED, f"{SUBSCRIPTION}/deadLetters", **query)
        assert refused.status_code == 403
        assert "token-1" in refused.text
    assert (await shop.ok(MASKED, f"{SUBSCRIPTION}/deadLetters", groupBy="attribute:shop"))["groups"]


@pytest.mark.parametrize("is_current", [True, False])
async def test_dead_letters_are_not_grouped_or_chosen_by_what_their_own_topic_masks(
    shop: Shop, *, is_current: bool
) -> None:
    other = f"{PROJECT}/topics/payments-other"
    if not is_current:
        await shop.broker.ok("PUT", other, {})
    rule = f"{PROJECT}/maskingRules/dead"
    await shop.broker.ok("PUT", rule, {"topics": ["payments-dead"], "attributes": ["shop"]})
    await set_dead_letter_topic(shop.broker, DEAD if is_current else other)
    [listed] = (await shop.ok(MASKED, f"{SUBSCRIPTION}/deadLetters"))["deadLetters"]
    assert listed["message"]["attributes"]["shop"] == "[masked]"
    for query in (
        {"groupBy": "attribute:shop"},
        {"attribute:shop": PLAIN},
        {"filter": f'attributes.shop = "{PLAIN}"'},
        {"filter": 'attributes.shop = "no dead letter has this"'},
    ):
        refused = await shop.get(MASKED, f"{SUBSCRIPTION}/deadLetters", **query)
        assert refused.status_code == 403, refused.text
        assert "maskingRules/dead" in refused.text
    await shop.broker.ok("DELETE", rule)
    assert (await shop.ok(MASKED, f"{SUBSCRIPTION}/deadLetters", groupBy="attribute:shop"))["groups"]
    await set_dead_letter_topic(shop.broker, DEAD)


async def set_dead_letter_topic(broker: Guarded, topic: str) -> None:
    subscription = {
        "name": SUBSCRIPTION, "deadLetterPolicy": {"deadLetterTopic": topic, "maxDeliveryAttempts": 5},
    }  # fmt: skip
    await broker.ok("PATCH", SUBSCRIPTION, {"subscription": subscription, "updateMask": "deadLetterPolicy"})


async def test_dead_letters_of_dead_letters_keep_the_rules(shop: Shop) -> None:
    topics = [f"{PROJECT}/topics/chain-{number}" for number in range(3)]
    for topic in topics:
        await shop.broker.ok("PUT", topic, {"messageRetentionDuration": "600s"})
    await publish(shop.broker, topics[2])
    await shop.broker.ok("PUT", f"{PROJECT}/maskingRules/chain", {"topics": ["chain-0"], "attributes": ["shop"]})

    async def shown() -> str:
        [listed] = (await shop.ok(MASKED, f"{topics[2]}/messages"))["messages"]
        return str(listed["attributes"]["shop"])

    assert await shown() == PLAIN
    for number, (topic, dead) in enumerate([(1, 2), (0, 1), (2, 0)]):  # the last one closes a circle
        policy = {"deadLetterTopic": topics[dead], "maxDeliveryAttempts": 5}
        subscription = {"topic": topics[topic], "deadLetterPolicy": policy}
        await shop.broker.ok("PUT", f"{PROJECT}/subscriptions/chain-{number}", subscription)
        assert await shown() == ("[masked]" if number else PLAIN)
    await shop.broker.ok("DELETE", f"{PROJECT}/subscriptions/chain-1")
    assert await shown() == PLAIN


async def test_what_is_not_masked_can_be_searched(shop: Shop) -> None:
    query = {"filter": f'attributes.shop = "{PLAIN}" AND attributes:token-1'}
    assert (await shop.ok(MASKED, f"{TOPIC}/messages", **query))["messages"]
    free = f"{PROJECT}/topics/free"
    await shop.broker.ok("PUT", free, {"messageRetentionDuration": "600s"})
    await publish(shop.broker, free)
    found = await shop.ok(MASKED, f"{free}/messages", contains="4111", filter="body.total > 5")
    assert len(found["messages"]) == 1
    assert "masked" not in found["messages"][0]


async def test_a_body_in_which_fields_cannot_be_found_is_hidden_as_a_whole(shop: Shop) -> None:
    for body in (f"card={CARD}", f'{{"card":"{CARD}"', json.dumps({"card": CARD, "fill": "x" * 300_000})):
        message_id = await publish(shop.broker, TOPIC, body=body)
        found = await shop.ok(MASKED, f"{TOPIC}/messages/{message_id}")
        assert "data" not in found["message"]
        assert found["masked"]["data"] == "ALL"
        refused = await shop.get(MASKED, f"{TOPIC}/messages/{message_id}:data")
        assert refused.status_code == 403
        assert "maskingRules/cards" in refused.text


async def test_a_rule_for_a_subscription_is_for_what_is_shown_of_it(shop: Shop) -> None:
    topic, subscription = f"{PROJECT}/topics/orders", f"{PROJECT}/subscriptions/audited"
    await shop.broker.ok("PUT", topic, {"messageRetentionDuration": "600s"})
    await shop.broker.ok("PUT", subscription, {"topic": topic})
    await publish(shop.broker, topic)
    rule = {"subscriptions": ["audited"], "attributes": ["shop"]}
    await shop.broker.ok("PUT", f"{PROJECT}/maskingRules/audited", rule)
    [listed] = (await shop.ok(MASKED, f"{subscription}/messages"))["messages"]
    assert listed["message"]["attributes"]["shop"] == "[masked]"
    assert listed["masked"]["rules"] == [f"{PROJECT}/maskingRules/audited"]
    [listed] = (await shop.ok(MASKED, f"{topic}/messages"))["messages"]
    assert listed["attributes"]["shop"] == PLAIN


async def test_what_is_masked_stays_masked_when_the_topic_is_deleted(shop: Shop) -> None:
    topic, subscription = f"{PROJECT}/topics/payments-old", f"{PROJECT}/subscriptions/orphaned"
    await shop.broker.ok("PUT", topic, {})
    await shop.broker.ok("PUT", subscription, {"topic": topic})
    await publish(shop.broker, topic)
    await shop.broker.ok("DELETE", topic)
    [listed] = (await shop.ok(MASKED, f"{subscription}/messages"))["messages"]
    assert listed["message"]["attributes"]["token-1"] == "[masked]"
    assert CARD not in texts(json.dumps(listed).encode())
    refused = await shop.get(MASKED, f"{subscription}/messages", contains=CARD)
    assert (refused.status_code, "maskingRules/" in refused.text) == (403, True)


async def test_what_is_dead_lettered_twice_stays_masked_in_the_list_of_the_project(shop: Shop) -> None:
    """The rule is for the first topic alone, which neither the subscription nor the dead-letter topic names."""
    names = ["chained", "chained-dead", "chained-end"]
    topics = [f"{PROJECT}/topics/{name}" for name in names]
    subscriptions = [f"{PROJECT}/subscriptions/{name}" for name in names]
    rule = f"{PROJECT}/maskingRules/chained"
    await shop.broker.ok(
        "PUT", rule, {"topics": ["chained"], "fields": ["$.card", "$..pin"], "attributes": ["tok*"]}
    )
    for topic in topics:
        await shop.broker.ok("PUT", topic, {})
    for at, subscription in enumerate(subscriptions):
        policy = {"deadLetterPolicy": {"deadLetterTopic": topics[at + 1]}} if at < 2 else {}
        await shop.broker.ok("PUT", subscription, {"topic": topics[at], **policy})
    secrets = {"token-1": "CHAINED-TOKEN", "shop": "chained"}
    await publish(shop.broker, topics[0], secrets, json.dumps({"card": "CHAINED-CARD"}))
    for subscription in subscriptions[:2]:

        async def pulled(subscription: str = subscription) -> Json:
            return (await shop.broker.ok("POST", f"{subscription}:pull", {"maxMessages": 1})).get(
                "receivedMessages", []
            )

        [received] = await eventually(pulled)
        await shop.broker.ok("POST", f"{subscription}:reject", {"ackIds": [received["ackId"]]})
    asked = {"filter": f'sourceSubscription = "{subscriptions[1]}"'}

    async def listed() -> Json:
        return (await shop.ok(MASKED, f"{PROJECT}/deadLetters", **asked)).get("deadLetters", [])

    [dead_letter] = await eventually(listed)
    assert (dead_letter["sourceTopic"], dead_letter["deadLetterTopic"]) == (topics[1], topics[2])
    assert dead_letter["message"]["attributes"]["token-1"] == "[masked]"
    assert "CHAINED-CARD" not in texts(json.dumps(dead_letter).encode())


async def test_a_rule_holds_at_once_and_a_change_of_it_too(shop: Shop) -> None:
    topic, rule = f"{PROJECT}/topics/changing", f"{PROJECT}/maskingRules/changing"
    await shop.broker.ok("PUT", topic, {"messageRetentionDuration": "600s"})
    await publish(shop.broker, topic)

    async def shown() -> Json:
        [listed] = (await shop.ok(MASKED, f"{topic}/messages"))["messages"]
        attributes: Json = listed["attributes"]
        return attributes

    assert (await shown())["shop"] == PLAIN
    await shop.broker.ok("PUT", rule, {"topics": ["changing"], "attributes": ["shop"]})
    assert await shown() == {"shop": "[masked]", "token-1": TOKEN}
    await shop.broker.ok("PATCH", rule, {"attributes": ["token-1"]})
    assert await shown() == {"shop": PLAIN, "token-1": "[masked]"}
    await shop.broker.ok("DELETE", rule)
    assert await shown() == {"shop": PLAIN, "token-1": TOKEN}


async def test_pulls_deliver_messages_whole(shop: Shop) -> None:
    await publish(shop.broker, TOPIC)
    headers = shop.headers["subscriber"]
    pulled = await shop.broker.ok("POST", f"{SUBSCRIPTION}:pull", {"maxMessages": 10}, headers=headers)
    for each in pulled["receivedMessages"]:
        assert each["message"]["attributes"]["token-1"] == TOKEN
    for role in (VIEWER, ATTRIBUTES, MASKED):  # and to nobody who may only look
        for path, body in ((f"{SUBSCRIPTION}:pull", {"maxMessages": 1}), (f"{TOPIC}:export", {})):
            refused = await shop.broker.call("POST", path, body, headers=shop.headers[role])
            assert refused.status_code == 403


async def test_an_open_tail_masks_by_a_rule_that_is_made_meanwhile(shop: Shop) -> None:
    topic = f"{PROJECT}/topics/tailed"
    await shop.broker.ok("PUT", topic, {"messageRetentionDuration": "600s"})
    await publish(shop.broker, topic)
    query = {"startTime": "2020-01-01T00:00:00Z"}
    tail = shop.broker.client.stream("GET", f"/v1/{topic}:tail", headers=shop.headers[MASKED], params=query)
    async with tail as response:
        lines = response.aiter_lines()
        assert (await event(lines))["attributes"]["shop"] == PLAIN
        await shop.broker.ok(
            "PUT", f"{PROJECT}/maskingRules/tailed", {"topics": ["tailed"], "attributes": ["shop"]}
        )
        await publish(shop.broker, topic)
        assert (await event(lines))["attributes"]["shop"] == "[masked]"


async def event(lines: AsyncIterator[str]) -> Json:
    async for line in lines:
        if line.startswith("data: "):
            found: Json = json.loads(line.removeprefix("data: "))
            return found
    raise AssertionError("the tail has ended")


# --- random rules and messages ----------------------------------------------------------------------------------

NAMES = ("card", "pin", "items", "shop", "e-mail")


def random_value(random: Random, depth: int = 0) -> Any:
    """JSON whose texts are all different, so that each shows where it comes from."""
    kind = random.choice(("text", "text", "object", "array")) if depth < 3 else "text"
    if kind == "object":
        return {name: random_value(random, depth + 1) for name in random.sample(NAMES, random.randint(0, 4))}
    if kind == "array":
        return [random_value(random, depth + 1) for _ in range(random.randint(0, 3))]
    return f"v{random.getrandbits(64):016x}"


def random_path(random: Random) -> str:
    steps = [
        random.choice((".{}", "..{}", "['{}']")).format(random.choice(NAMES)) for _ in range(random.randint(1, 3))
    ]
    return "$" + "".join(steps)


def values_at(value: Any, path: str) -> Iterator[str]:
    """The texts at a path, by a reading of it that is not the broker's."""
    steps = [(m[1] == "..", m[2] or m[3]) for m in re.finditer(r"(\.\.|\.|)(?:\['([^']+)'\]|([\w-]+))", path[1:])]
    yield from _below(value, steps)


def _below(value: Any, steps: Sequence[tuple[bool, str]]) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from _below(each, steps) if steps else _leaves(each)
    elif not steps:
        yield from _leaves(value)
    elif isinstance(value, dict):
        (deep, name), rest = steps[0], steps[1:]
        for key, each in value.items():
            if key == name:
                yield from _below(each, rest)
            if deep:
                yield from _below(each, steps)


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _leaves(each)


@pytest.mark.parametrize("seed", range(6))
async def test_random_rules_hold_in_every_call(shop: Shop, seed: int) -> None:
    random = Random(seed)
    bodies = [random_value(random) for _ in range(8)]
    attributes = [{name: f"a{random.getrandbits(64):016x}" for name in random.sample(NAMES, 3)} for _ in bodies]
    fields = [random_path(random) for _ in range(random.randint(1, 3))]
    hidden_names = random.sample(NAMES, 2)
    topic = f"{PROJECT}/topics/random-{seed}"
    subscription = f"{PROJECT}/subscriptions/random-{seed}"
    await shop.broker.ok("PUT", topic, {"messageRetentionDuration": "600s"})
    await shop.broker.ok("PUT", subscription, {"topic": topic})
    rule = {"topics": [f"random-{seed}"], "attributes": hidden_names, "fields": fields}
    await shop.broker.ok("PUT", f"{PROJECT}/maskingRules/random-{seed}", rule)
    messages = [
        {"data": base64.b64encode(json.dumps(body).encode()).decode(), "attributes": given}
        for body, given in zip(bodies, attributes, strict=True)
    ]
    published = await shop.broker.ok("POST", f"{topic}:publish", {"messages": messages})
    hidden = {given[name] for given in attributes for name in hidden_names if name in given}
    hidden |= {text for body in bodies for path in fields for text in values_at(body, path)}
    shown = {text for given in attributes for name, text in given.items() if name not in hidden_names}
    shown |= {text for body in bodies for text in _leaves(body)} - hidden
    lists = [f"{topic}/messages", f"{subscription}/messages"]
    lists += [f"{topic}/messages/{each}" for each in published["messageIds"]]
    said = "".join([texts((await shop.get(MASKED, path)).content) for path in lists])
    for path in (topic, subscription):
        tested = await shop.broker.call(
            "POST", f"{path}:testFilter", {"includeData": True}, headers=shop.headers[MASKED]
        )
        assert tested.status_code == 200
        said += texts(tested.content)
    assert not [each for each in hidden if each in said]
    assert not [each for each in shown if each not in said]  # and nothing else is hidden
