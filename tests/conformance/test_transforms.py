"""Message transforms, as Google documents them: https://cloud.google.com/pubsub/docs/smts/smts-overview (A11)."""

import base64
import json
import zlib
from typing import Any

import pytest

from tests.fixtures.broker import Json, Rest, eventually, message, text


def udf(body: str, name: str = "f", **fields: Any) -> Json:
    """A transform by a function with this body."""
    return {
        "javascriptUdf": {"functionName": name, "code": f"function {name}(message, metadata) {{ {body} }}"},
        **fields,
    }


def zlib_(mode: str) -> Json:
    return {"compression": {"compressionAlgorithm": "ZLIB", "compressionMode": mode}}


MARKED = udf("message.attributes.seen = 'yes'; return message;")
SHOUTED = udf("message.data = message.data.toUpperCase(); return message;", "shout")
ODD = udf(
    "const n = Number(message.data); if (n === 13) throw new Error('unlucky'); return n % 2 ? message : null;"
)


async def both(rest: Rest, *, topic: Any = (), subscription: Any = (), **fields: Any) -> None:
    """A topic and a subscription with these transforms."""
    await rest.create_topic(messageTransforms=list(topic))
    await rest.create_subscription(messageTransforms=list(subscription), **fields)


def texts(received: list[Json]) -> list[str]:
    return [text(each) for each in received]


# --- what they are ------------------------------------------------------------------------------------------


async def test_transforms_are_given_back_changed_and_taken_away(rest: Rest) -> None:
    given = [MARKED, {**SHOUTED, "disabled": True}, zlib_("COMPRESS")]
    await both(rest, topic=given, subscription=given)
    for path, kind in ((rest.topic(), "topic"), (rest.subscription(), "subscription")):
        assert (await rest.ok("GET", path))["messageTransforms"] == given
        change = {"updateMask": "messageTransforms", kind: {"name": path, "messageTransforms": [SHOUTED]}}
        assert (await rest.ok("PATCH", path, change))["messageTransforms"] == [SHOUTED]
        change = {"updateMask": "messageTransforms", kind: {"name": path}}
        assert "messageTransforms" not in await rest.ok("PATCH", path, change)


@pytest.mark.parametrize(
    ("transforms", "expected"),
    [
        ([{}], "messageTransforms[0] has no transform"),
        (
            [{"aiInference": {"endpoint": "e"}}],
            "messageTransforms[0].aiInference is not supported: this broker calls",
        ),
        ([zlib_("")], "messageTransforms[0].compression.compressionMode must be COMPRESS or DECOMPRESS"),
        ([{"compression": {"compressionMode": "COMPRESS"}}], "compressionAlgorithm must be ZLIB"),
        ([MARKED, MARKED], "messageTransforms[1].javascriptUdf.functionName=f is the name of an earlier one"),
        ([udf("", f"f{n}") for n in range(6)], "messageTransforms has 6 transforms, the maximum is 5."),
        ([udf("//" + "x" * 20_480)], "messageTransforms[0].javascriptUdf.code has 205"),
        ([udf("", "a b")], "functionName must be the name of a JavaScript function, not 'a b'"),
        ([MARKED, udf("\n  return message..data;", "g")], "[1].javascriptUdf.code: SyntaxError: "),
        ([udf("\n  return message..data;")], "(line 2, column "),
        ([{"javascriptUdf": {"functionName": "f", "code": "function g(m) {}"}}], "there is no function f in it"),
        ([{"javascriptUdf": {"functionName": "f", "code": "for (;;);"}}], "it took more than 0.5 s"),
    ],
)
async def test_what_cannot_be_a_transform_is_refused_with_its_place(
    rest: Rest, transforms: list[Json], expected: str
) -> None:
    transforms = [
        {"compression": {"compressionAlgorithm": "ZLIB"}} if each == zlib_("") else each for each in transforms
    ]
    status, said = await rest.error("PUT", rest.topic(), {"messageTransforms": transforms})
    assert status == "INVALID_ARGUMENT"
    assert expected in said
    await rest.create_topic()
    wanted = {"topic": rest.topic(), "messageTransforms": transforms}
    assert await rest.error("PUT", rest.subscription(), wanted) == (status, said)
    change = {"updateMask": "messageTransforms", "topic": {"name": rest.topic(), "messageTransforms": transforms}}
    assert await rest.error("PATCH", rest.topic(), change) == (status, said)


# --- of a topic ----------------------------------------------------------------------------------------------


async def test_a_topic_stores_what_its_transforms_make_in_their_order(rest: Rest) -> None:
    twice = udf("message.data += message.data; delete message.attributes.a; return message;", "twice")
    off = udf("return null;", "off", disabled=True)
    await both(rest, topic=[SHOUTED, off, twice, MARKED])
    await rest.publish(message("ab\u00e9", {"a": "1", "b": "2"}))
    [received] = await rest.pull()
    assert (text(received), received["message"]["attributes"]) == ("AB\u00c9AB\u00c9", {"b": "2", "seen": "yes"})


async def test_a_message_that_a_topic_drops_has_an_id_and_a_place_and_is_delivered_to_nobody(rest: Rest) -> None:
    await both(rest, topic=[ODD])
    ids = await rest.publish(*"12345678")
    assert len(set(ids)) == 8
    last = await rest.publish("20", "22")  # nothing of it is stored
    after = await rest.publish("9")
    assert [int(id_) for id_ in [*ids, *last, *after]] == list(range(int(ids[0]), int(ids[0]) + 11))
    received = await rest.pull()
    assert [(each["message"]["messageId"], text(each)) for each in received] == [
        *((ids[n - 1], str(n)) for n in (1, 3, 5, 7)),
        (after[0], "9"),
    ]
    await rest.acknowledge(received)
    assert await rest.pull() == []


async def test_a_topic_with_transforms_keeps_the_order_of_keys_and_filters_what_they_have_made(rest: Rest) -> None:
    kinds = udf("message.attributes.odd = String(Number(message.data) % 2); return message;", "kinds")
    await both(
        rest, topic=[udf("return message.data === '5' ? null : message;"), kinds], enableMessageOrdering=True
    )
    await rest.create_subscription("filtered", filter='attributes.odd = "1"')
    for n in range(1, 9):
        await rest.publish({"orderingKey": "k"} | message(str(n)))
    assert texts(await rest.pull()) == [*"1234678"]
    assert texts(await rest.pull("filtered")) == [*"137"]


async def test_a_message_that_a_transform_fails_for_fails_the_publish(rest: Rest) -> None:
    await both(rest, topic=[ODD])
    body = {"messages": [message(each) for each in ("1", "13", "3")]}
    status, said = await rest.error("POST", f"{rest.topic()}:publish", body)
    assert status == "INVALID_ARGUMENT"
    assert said.startswith("A transform of the topic failed for messages[1]: Error: unlucky (line 1, column ")
    assert await rest.pull() == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return undefined;", "it must return a message or null, not undefined"),
        ("return {attributes: {}};", "it must return data that is a string"),
        ("return {data: 'x', attributes: {a: 1}};", "it must return a message whose data is a string and"),
        (
            "return {data: '', attributes: {}};",
            "failed for messages[0]: what it returns breaks a limit: message is empty",
        ),
        ("return {data: 'x', attributes: {'googA': '1'}};", "keys may not start with 'goog'"),
        ("return {data: 'x'.repeat(10000001)};", "what it returns is over 10000000 bytes"),
    ],
)
async def test_what_a_transform_makes_must_be_a_message(rest: Rest, body: str, expected: str) -> None:
    await both(rest, topic=[udf(body)])
    status, said = await rest.error("POST", f"{rest.topic()}:publish", {"messages": [message("1")]})
    assert status == "INVALID_ARGUMENT"
    assert expected in said


async def test_data_that_is_no_text_is_not_for_javascript(rest: Rest) -> None:
    await both(rest, topic=[MARKED])
    body = {"messages": [{"data": base64.b64encode(b"a\xff").decode()}]}
    _, said = await rest.error("POST", f"{rest.topic()}:publish", body)
    assert "the data is not UTF-8 (at byte 1)" in said


async def test_a_schema_is_held_against_what_the_transforms_make(rest: Rest) -> None:
    definition = json.dumps({"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]})
    schema = {"type": "AVRO", "definition": definition}
    await rest.ok("POST", f"{rest.project}/schemas", schema, params={"schemaId": "numbers"})
    settings = {"schema": f"{rest.project}/schemas/numbers", "encoding": "JSON"}
    wrapped = udf("return message.data ? {data: JSON.stringify({n: Number(message.data)})} : null;")
    await rest.create_topic(messageTransforms=[wrapped], schemaSettings=settings)
    await rest.create_subscription()
    await rest.publish("7", message("", {"a": "1"}), "8")
    received = await rest.pull()
    assert texts(received) == ['{"n":7}', '{"n":8}']
    assert all(each["message"]["attributes"]["googclient_schemaencoding"] == "JSON" for each in received)
    _, said = await rest.error("POST", f"{rest.topic()}:publish", {"messages": [message("x")]})
    assert "Message failed schema validation" in said


# --- of a subscription ---------------------------------------------------------------------------------------


async def test_each_subscription_gets_what_its_own_transforms_make(rest: Rest) -> None:
    await both(rest, topic=[SHOUTED], subscription=[ODD, SHOUTED | {"disabled": True}])
    reported = udf("message.data = JSON.stringify([message.data, metadata]); return message;")
    await rest.create_subscription("told", messageTransforms=[reported])
    await rest.create_subscription("plain")
    [id_, _, _] = await rest.publish("1", "2", "3")
    await rest.publish({"orderingKey": "k"} | message("5"))
    received = await rest.pull()
    assert texts(received) == [*"135"]
    assert texts(await rest.pull("plain")) == [*"1235"]
    stored, metadata = json.loads(text((await rest.pull("told"))[0]))
    published_at = received[0]["message"]["publishTime"]
    assert (stored, metadata) == ("1", {"message_id": id_, "publish_time": f"{published_at[:19]}Z"})
    await rest.acknowledge(received)
    assert await rest.pull() == []


async def test_a_function_knows_no_time_and_no_chance_but_the_messages_own(rest: Rest) -> None:
    unsteady = udf(
        "return {data: [Date.now(), new Date().toISOString(), Math.random(), typeof performance].join()}"
    )
    await both(rest, subscription=[unsteady])
    await rest.publish("1", "2")
    first = await rest.pull()
    await rest.modify_ack_deadline(first, 0)
    again = await eventually(rest.pull)
    assert texts(first) == texts(again)
    now, at, chance, performance = text(first[0]).split(",")
    assert at == first[0]["message"]["publishTime"] or at.startswith(first[0]["message"]["publishTime"][:-1])
    assert now.isdigit()
    assert 0 <= float(chance) < 1
    assert performance == "undefined"
    assert text(first[1]).split(",")[2] != chance


async def test_a_message_that_a_transform_fails_for_is_nacked_and_others_are_not(rest: Rest) -> None:
    await rest.create_topic("letters")
    await rest.create_subscription("letters", "letters")
    policy = {"deadLetterTopic": rest.topic("letters"), "maxDeliveryAttempts": 5}
    retry = {"minimumBackoff": "0s", "maximumBackoff": "0s"}
    await both(rest, subscription=[ODD], deadLetterPolicy=policy, retryPolicy=retry)
    await rest.publish("11", "13", "15")
    assert sorted(texts(await rest.pull())) == ["11", "15"]

    async def dead_letter() -> list[Json]:
        assert await rest.pull() == []
        return await rest.pull("letters")

    [dead] = await eventually(dead_letter)
    assert text(dead) == "13"
    assert dead["message"]["attributes"]["broker-dead-letter-reason"] == "transform"


@pytest.mark.parametrize(
    "body",
    [
        "for (let n = 0; n < 2e5; n++) message.attributes[n] = 'x'; return message;",
        "message.attributes['\\0'] = 'x'; return message;",
        "message.attributes[''] = 'x'; return message;",
        "message.attributes['k'.repeat(70000)] = 'x'; return message;",
        "message.attributes.googclient_schemaname = 'x'; return message;",
    ],
)
async def test_what_a_subscription_hands_out_is_within_the_limits_of_a_publish(rest: Rest, body: str) -> None:
    beyond = udf(f"if (message.data !== 'bad') return message; {body}")
    await both(rest, subscription=[beyond])
    await rest.publish("good", "bad", "better")
    assert sorted(texts(await rest.pull())) == ["better", "good"]
    message_ = {"data": base64.b64encode(b"bad").decode()}
    trial = {"subscription": rest.subscription(), "message": message_}
    answer = await rest.ok("POST", f"{rest.project}:testMessageTransforms", trial)
    assert "what it returns breaks a limit" in json.dumps(answer)


async def test_without_a_retry_policy_what_fails_comes_again_after_a_while(rest: Rest) -> None:
    await both(rest, subscription=[udf("throw new Error('no');")])
    await rest.publish("1")
    assert await rest.pull() == []
    change = {"updateMask": "messageTransforms", "subscription": {"name": rest.subscription()}}
    await rest.ok("PATCH", rest.subscription(), change)
    assert await rest.pull() == []
    assert texts(await eventually(rest.pull)) == ["1"]


@pytest.mark.parametrize("kind", [{}, {"enableExactlyOnceDelivery": True}])
async def test_the_order_of_a_key_holds_across_what_is_dropped_or_fails(rest: Rest, kind: Json) -> None:
    retry = {"minimumBackoff": "0s", "maximumBackoff": "0s"}
    await both(rest, subscription=[ODD], enableMessageOrdering=True, retryPolicy=retry, **kind)
    for n in [2, 4, 1, 3, 6, 5, 8, 13, 7]:
        await rest.publish({"orderingKey": "k"} | message(str(n)))
    await rest.publish({"orderingKey": "other"} | message("9"))
    got: list[str] = []
    for _ in range(8):
        received = await rest.pull()
        got += texts(received)
        if received:
            await rest.acknowledge(received)
    assert sorted(got) == ["1", "3", "5", "9"]
    assert [each for each in got if each != "9"] == ["1", "3", "5"]
    lucky = udf("return Number(message.data) % 2 ? message : null;")
    change = {"name": rest.subscription(), "messageTransforms": [lucky]}
    await rest.ok("PATCH", rest.subscription(), {"updateMask": "messageTransforms", "subscription": change})
    received = await eventually(rest.pull)
    assert texts(received) == ["13", "7"]


async def test_data_is_compressed_and_decompressed(rest: Rest) -> None:
    await both(rest, topic=[zlib_("COMPRESS")], subscription=[zlib_("DECOMPRESS"), SHOUTED])
    await rest.create_subscription("packed")
    await rest.publish("abc" * 1000)
    [packed] = await rest.pull("packed")
    assert zlib.decompress(base64.b64decode(packed["message"]["data"])) == b"abc" * 1000
    assert texts(await rest.pull()) == ["ABC" * 1000]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"abc", "the data is not compressed by zlib"),
        (zlib.compress(b"x" * 20_000_000), "decompressed, the data is over 10000000 bytes"),
        (zlib.compress(b"x" * 200)[:-3], "ends too soon"),
        (zlib.compress(b"x") + b"x", "goes on behind its end"),
    ],
    ids=["plain", "bomb", "cut", "long"],
)
async def test_what_does_not_decompress_fails(rest: Rest, data: bytes, expected: str) -> None:
    await both(rest, topic=[zlib_("DECOMPRESS")])
    body = {"messages": [{"data": base64.b64encode(data).decode()}]}
    status, said = await rest.error("POST", f"{rest.topic()}:publish", body)
    assert status == "INVALID_ARGUMENT"
    assert expected in said
