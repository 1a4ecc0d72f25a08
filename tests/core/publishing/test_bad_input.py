"""What cannot be, of messages that come later, expire, are urgent, repeat or are withdrawn (J1 to J7).

Each is refused by field and value, over both APIs where both have it, and nothing of it is stored.
"""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from tests.fixtures.broker import Json, Rest, message, text
from tests.fixtures.grpc import GrpcRest, channel_to

EXTENSIONS = {"delay": True, "expiry": True, "priorities": 3, "deduplication": {"window": "600s"}}
LONG = "9" * 900
SURROGATE = r'"\ud800"'
NO_IDS = [
    "x",
    "0",
    "-1",
    "1e15",
    "\uff11\uff12\uff13",
    LONG,
    "1000000000000001\0",
    " 1000000000000001",
    "1" + "0" * 15,
]


@pytest.fixture(scope="module")
def channel(broker_url: str) -> Iterator[grpc.Channel]:
    with channel_to(broker_url) as opened:
        yield opened


@pytest.fixture(params=["REST", "gRPC"])
def api(request: pytest.FixtureRequest, rest: Rest, channel: grpc.Channel) -> Rest:
    return rest if request.param == "REST" else GrpcRest(channel, rest.project)


@pytest.fixture
async def waits(rest: Rest) -> str:
    """The id of a message that waits; its topic has all extensions, its subscription `sub` dead letters."""
    await rest.create_topic(extensions=EXTENSIONS)
    await rest.create_topic("dead")
    policy = {"deadLetterTopic": rest.topic("dead"), "maxDeliveryAttempts": 5}
    await rest.create_subscription(deadLetterPolicy=policy, enableMessageOrdering=True)
    [id_] = await rest.publish(message("waits", {"broker-delay": "3600s"}))
    return id_


async def stored(rest: Rest) -> list[str]:
    """What is there, but for that which waits."""
    listed = await rest.ok("GET", f"{rest.topic()}/scheduled")
    later = [each["messageId"] for each in listed["scheduledMessages"]]
    return [*later[1:], *map(text, await rest.drain())]


async def refused(rest: Rest, path: str, body: Any, *said: str, method: str = "POST") -> str:
    options = {"content": body} if isinstance(body, str) else {"json": body}
    code, why = await rest.error(method, path, **options)
    assert code == "INVALID_ARGUMENT", why
    assert all(each in why for each in said), why
    assert len(why) < 600
    return why


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("broker-deliver-at", "2027-11-25T00:00:00Z", "more than 31 days ahead"),
        ("broker-deliver-at", "9999-12-31T23:59:59Z", "more than 31 days ahead"),
        ("broker-deliver-at", "2026-13-01T00:00:00Z", "is not a time"),
        ("broker-deliver-at", "2026-12-01", "is not a time"),
        ("broker-deliver-at", "2026-12-01T00:00:00", "is not a time"),
        ("broker-deliver-at", "1764547200", "is not a time"),
        ("broker-deliver-at", "\u0662026-12-01T00:00:00Z", "is not a time"),
        ("broker-deliver-at", "", "is not a time"),
        ("broker-deliver-at", LONG, "is not a time"),
        ("broker-delay", "31622400s", "more than 31 days ahead"),
        ("broker-delay", "2678401s", "more than 31 days ahead"),
        ("broker-delay", "99999999999999s", "is not a duration"),
        ("broker-delay", "1h", "is not a duration"),
        ("broker-delay", "PT1H", "is not a duration"),
        ("broker-delay", "60", "is not a duration"),
        ("broker-delay", "1_0s", "is not a duration"),
        ("broker-delay", "NaNs", "is not a duration"),
        ("broker-delay", "", "is not a duration"),
        ("broker-delay", LONG, "is not a duration"),
        ("broker-ttl", "0s", "not above 0s"),
        ("broker-ttl", "-60s", "not above 0s"),
        ("broker-ttl", "31622400s", "at most"),
        ("broker-ttl", "2026-12-01T00:00:00Z", "is not a duration"),
        ("broker-ttl", "", "is not a duration"),
        ("broker-priority", "3", "is not a level"),
        ("broker-priority", "-1", "is not a level"),
        ("broker-priority", "", "is not a level"),
        ("broker-priority", "high", "is not a level"),
        ("broker-priority", LONG, "is not a level"),
        ("broker-dedup-id", "", "is empty"),
        ("broker-dedup-id", "i" * 257, "257 characters, the maximum is 256"),
    ],
)
async def test_an_attribute_that_cannot_be_is_refused_over_both_apis(
    rest: Rest, api: Rest, waits: str, name: str, value: str, said: str
) -> None:
    messages = [message("fine"), message("bad", {name: value})]
    path = f"{rest.topic()}:publish"
    code, why = await api.error("POST", path, {"messages": messages})
    assert (code, f"messages[1].attributes.{name}" in why, said in why) == ("INVALID_ARGUMENT", True, True), why
    assert value[:60] in why
    assert len(why) < 500
    assert await stored(rest) == []
    if isinstance(api, GrpcRest):
        return
    why = await refused(rest, f"{rest.topic()}:replace", {"messageId": waits, "message": messages[1]}, said)
    assert f"message.attributes.{name}" in why
    assert (await rest.ok("GET", f"{rest.topic()}/scheduled/{waits}"))["messageId"] == waits


@pytest.mark.usefixtures("waits")
@pytest.mark.parametrize(
    ("attributes", "key", "said"),
    [
        ({"broker-priority": "0"}, "k", ("messages[1]", "ordering key", "broker-priority", "'0'")),
        (
            {"broker-delay": "1s", "broker-deliver-at": "x"},
            "",
            ("messages[1]", "broker-deliver-at", "broker-delay"),
        ),
        ({"broker-dedup-id": "a\0b"}, "", ("messages[1].attributes", "U+0000", "broker-dedup-id")),
        ({"broker-ttl": "60s", "broker-\0": "x"}, "", ("messages[1].attributes", "U+0000")),
        ({f"broker-dedup-id{n}": "i" for n in range(1_000)}, "", ("messages[1].attributes", "1000", "100")),
        ({"broker-dedup-id": "i" * 1_025}, "", ("messages[1].attributes", "broker-dedup-id", "1025")),
    ],
)
async def test_attributes_that_cannot_be_together_are_refused_over_both_apis(
    rest: Rest, api: Rest, attributes: dict[str, str], key: str, said: tuple[str, ...]
) -> None:
    ordered = {"orderingKey": key} if key else {}
    body = {"messages": [message("fine", **ordered), message("bad", attributes, **ordered)]}
    code, why = await api.error("POST", f"{rest.topic()}:publish", body)
    assert (code, [each for each in said if each not in why], len(why) < 600) == ("INVALID_ARGUMENT", [], True), why
    assert await stored(rest) == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (7, "extensions"),
        ({"delay": "yes"}, "extensions.delay"),
        ({"delay": {"max": "60s"}}, "extensions.delay"),
        ({"expiry": 1}, "extensions.expiry"),
        ({"expiry": {"default": "60s"}}, "extensions.expiry"),
        ({"priorities": 11}, "extensions.priorities"),
        ({"priorities": 10**30}, "extensions.priorities"),
        ({"deduplication": {"window": "1h"}}, "extensions.deduplication.window"),
        ({"deduplication": {"window": "-60s"}}, "extensions.deduplication.window"),
        ({"deduplication": {"window": "600s", "scope": "topic"}}, "scope"),
        ({"shards": 257}, "extensions.shards"),
        ({"Delay": True}, "Delay"),
        ({"retraction": True}, "retraction"),
    ],
)
async def test_extensions_that_cannot_be_are_refused_by_their_names(rest: Rest, given: Any, said: str) -> None:
    await rest.create_topic()
    await refused(rest, rest.topic("other"), {"extensions": given}, said, method="PUT")
    change = {"topic": {"extensions": given}, "updateMask": "extensions"}
    await refused(rest, rest.topic(), change, said, method="PATCH")
    assert (await rest.error("GET", rest.topic("other")))[0] == "NOT_FOUND"
    assert "extensions" not in await rest.ok("GET", rest.topic())


@pytest.mark.parametrize(
    "given", [{"deadLetterExpired": "x"}, {"deadLetterExpired": 7}, {"deadLetterExpire": True}]
)
async def test_an_extension_of_a_subscription_that_cannot_be_is_refused_by_name(rest: Rest, given: Json) -> None:
    await rest.create_topic()
    body = {"topic": rest.topic(), "extensions": given}
    await refused(rest, rest.subscription(), body, "extensions", *given, method="PUT")
    assert (await rest.error("GET", rest.subscription()))[0] == "NOT_FOUND"


CALLS: list[tuple[str, str, Json]] = [
    ("topics/topic:retract", "messageIds", {}),
    ("topics/topic:replace", "messageId", {"message": message("new")}),
    ("subscriptions/sub:resend", "messageId", {}),
    ("subscriptions/sub:resend", "messageIds", {}),
    ("subscriptions/sub:release", "messageIds", {}),
    ("subscriptions/sub:deadLetter", "messageIds", {}),
    ("subscriptions/sub:discard", "messageIds", {}),
    ("subscriptions/sub:redrive", "messageIds", {}),
    ("subscriptions/sub:editDeadLetter", "messageId", {"setAttributes": {"a": "b"}}),
]


@pytest.mark.parametrize(("path", "field", "others"), CALLS, ids=lambda given: str(given)[-16:])
async def test_an_id_that_cannot_be_is_refused_by_its_field(
    rest: Rest, waits: str, path: str, field: str, others: Json
) -> None:
    where = f"{rest.project}/{path}"
    many = field == "messageIds"
    at = "messageIds[1]" if many else field
    for bad in NO_IDS:
        body = {field: [waits, bad] if many else bad, **others}
        await refused(rest, where, body, f"'{at}'", f"messageId={bad[:60]}")
    broken = f'{{"{field}": ' + (f'["{waits}", {SURROGATE}]}}' if many else f"{SURROGATE}}}")
    await refused(rest, where, broken, f"'{at}'", r"'\ud800' has a lone surrogate")
    for wrong in (True, {"a": 1}, [[waits]] if many else [waits]):
        await refused(rest, where, {field: wrong, **others}, f"`$.{field}")
    if many:
        await refused(rest, where, {field: [waits] * 1_001}, "messageIds has 1001 ids", "1,000")
    await refused(rest, where, {"force": True, **others}, '"force"')
    assert await stored(rest) == []
    assert (await rest.ok("GET", f"{rest.topic()}/scheduled/{waits}"))["messageId"] == waits
    assert "operations" not in await rest.ok("GET", f"{rest.project}/operations")


async def test_the_new_message_of_a_replacement_is_refused_by_its_name(rest: Rest, waits: str) -> None:
    where = f"{rest.topic()}:replace"
    cases: list[tuple[Any, str]] = [
        ({}, "message is empty"),
        (7, "'$.message'"),
        ({"data": "!"}, "`$.message.data`"),
        (message("m", {"a\0": "b"}), "message.attributes has the character U+0000"),
        (message("m", {"googx": "b"}), "message.attributes has the key 'googx'"),
        (message("m", colour="red"), "\"colour\" at '$.message'"),
        (message("m", {"broker-priority": "0"}, orderingKey="k"), "message has an ordering key"),
    ]
    for new, said in cases:
        await refused(rest, where, {"messageId": waits, "message": new}, said)
    broken = f'{{"messageId": "{waits}", "message": {{"data": "eA==", "attributes": {{"a": {SURROGATE}}}}}}}'
    await refused(rest, where, broken, "'message.attributes.a'", r"'\ud800'")
    assert await stored(rest) == []
    assert (await rest.ok("GET", f"{rest.topic()}/scheduled/{waits}"))["messageId"] == waits


@pytest.mark.usefixtures("waits")
async def test_an_edit_that_cannot_be_is_refused_before_anything_is_looked_up(rest: Rest) -> None:
    where = f"{rest.subscription()}:editDeadLetter"
    named = {"messageId": "1000000000000001"}
    cases: list[tuple[Json, str]] = [
        ({"setAttributes": [1]}, "`$.setAttributes`"),
        ({"setAttributes": {"": "b"}}, "setAttributes has an empty key"),
        ({"setAttributes": {"a": "\0"}}, "setAttributes has the character U+0000"),
        ({"setAttributes": {"googx": "b"}}, "setAttributes has the key 'googx'"),
        ({"setAttributes": {f"{n}": "b" for n in range(101)}}, "setAttributes has 101 entries"),
        ({"setAttributes": {"a": "b" * 1025}}, "setAttributes['a'] is too long"),
        ({"setAttributes": {"a": "b"}, "removeAttributes": ["a"]}, "attribute=a"),
        ({"removeAttributes": "a"}, "`$.removeAttributes`"),
        ({"data": "!"}, "`$.data`"),
    ]
    for change, said in cases:
        await refused(rest, where, named | change, said)
    broken = f'{{"messageId": "1", "setAttributes": {{{SURROGATE}: "b"}}}}'
    await refused(rest, where, broken, "'setAttributes: a name of it'", r"'\ud800'")
    assert await stored(rest) == []


@pytest.mark.usefixtures("waits")
@pytest.mark.parametrize("verb", ["redrive", "discard"])
async def test_a_choice_of_dead_letters_that_cannot_be_is_refused(rest: Rest, verb: str) -> None:
    cases: list[tuple[Json, tuple[str, ...]]] = [
        ({"startTime": "yesterday"}, ("'startTime'", "'yesterday'")),
        ({"endTime": LONG}, ("'endTime'", LONG[:60])),
        ({"startTime": "0001-01-01T00:00:00+14:00"}, ("'startTime'", "+14:00")),
        (
            {"startTime": "2026-01-02T00:00:00Z", "endTime": "2026-01-01T00:00:00Z"},
            ("startTime", "2026-01-02", "endTime", "2026-01-01"),
        ),
        ({"reasons": ["nack", "\0"]}, ("'reasons[1]'", r"'\x00'")),
        ({"reasons": ["r" * 101]}, ("'reasons[0]'", "r" * 100)),
        ({"reasons": ["r"] * 101}, ("reasons", "101", "100")),
        ({"reasons": "nack"}, ("`$.reasons`",)),
        ({"filter": "("}, ("filter",)),
    ]
    for body, said in cases:
        await refused(rest, f"{rest.subscription()}:{verb}", body, *said)
    assert "operations" not in await rest.ok("GET", f"{rest.project}/operations")


async def test_what_waits_is_moved_and_named_by_what_can_be_alone(rest: Rest, waits: str) -> None:
    listed = f"{rest.topic()}/scheduled"
    later = {"deliverTime": "2026-12-01T00:00:00Z"}
    for bad in ("x", "0", "-1", "\uff11", LONG, "1" * 15):
        for method, body in (("GET", None), ("PATCH", later), ("DELETE", None)):
            await refused(rest, f"{listed}/{bad}", body, "'messageId'", bad[:60], method=method)
    before = await rest.ok("GET", f"{listed}/{waits}")
    cases: list[tuple[Json, tuple[str, ...]]] = [
        ({"deliverTime": "2027-11-25T00:00:00Z"}, ("'deliverTime'", "2027-11-25", "31 days ahead")),
        ({"deliverTime": "3600s"}, ("'deliverTime'", "'3600s'")),
        ({"deliverTime": LONG}, ("'deliverTime'", LONG[:60])),
        ({"deliverTime": None}, ("deliverTime must be given",)),
        ({"deliverTime": True}, ("`$.deliverTime`",)),
        ({"deliverTime": "2026-12-01T00:00:00Z", "data": "eA=="}, ('"data"',)),
    ]
    for body, said in cases:
        await refused(rest, f"{listed}/{waits}", body, *said, method="PATCH")
    broken = f'{{"deliverTime": {SURROGATE}}}'
    await refused(rest, f"{listed}/{waits}", broken, "'deliverTime'", r"'\ud800'", method="PATCH")
    for query, said in (("pageSize=x", "pageSize"), ("pageSize=-1", "page_size"), ("pageToken=x", "page_token")):
        await refused(rest, f"{listed}?{query}", None, said, method="GET")
    assert await rest.ok("GET", f"{listed}/{waits}") == before


@pytest.mark.usefixtures("waits")
async def test_a_schedule_that_cannot_be_is_refused_by_its_fields(rest: Rest) -> None:
    base = {"topic": rest.topic(), "message": message("m"), "schedule": "0 3 * * *"}
    interval = {"schedule": None, "interval": "60s"}
    cases: list[tuple[Json, tuple[str, ...]]] = [
        ({"timeZone": "Mars/Base"}, ("timeZone", "Mars/Base")),
        ({"timeZone": "../../etc/passwd"}, ("timeZone", "etc/passwd")),
        ({"timeZone": "Europe/Berlin\0"}, ("timeZone", "Berlin")),
        ({"timeZone": "Z" * 900}, ("timeZone", "ZZZ")),
        ({"timeZone": ""}, ("timeZone",)),
        ({"schedule": "* * * *"}, ("schedule", "'* * * *'")),
        ({"schedule": "* * * * * * *"}, ("schedule", "'* * * * * * *'")),
        ({"schedule": "60 * * * *"}, ("schedule", "'60 * * * *'")),
        ({"schedule": "*/0 * * * *"}, ("schedule", "'*/0 * * * *'")),
        ({"schedule": "5-1 * * * *"}, ("schedule", "'5-1 * * * *'")),
        ({"schedule": "0 0 31 2 *"}, ("schedule", "'0 0 31 2 *'")),
        ({"schedule": "@daily"}, ("schedule", "'@daily'")),
        ({"schedule": "\u0661 * * * *"}, ("schedule",)),
        ({"schedule": "\0"}, ("schedule", r"'\x00'")),
        ({"schedule": "1," * 500 + "1 * * * *"}, ("schedule", "200 characters")),
        ({"schedule": 7}, ("schedule", "'7'")),
        ({"schedule": ["* * * * *"]}, ("`$.schedule`",)),
        ({**interval, "interval": "-60s"}, ("interval", "'-60s'")),
        ({**interval, "interval": "0s"}, ("interval", "'0s'")),
        ({**interval, "interval": "1.5s"}, ("interval", "'1.5s'")),
        ({**interval, "interval": "1h"}, ("interval", "'1h'")),
        ({**interval, "interval": "31622401s"}, ("interval", "366 days")),
        ({**interval, "interval": LONG}, ("interval", LONG[:60])),
        ({"start": "soon"}, ("'start'", "'soon'")),
        ({"end": "2026-12-01"}, ("'end'", "'2026-12-01'")),
        ({"start": "2026-12-02T00:00:00Z", "end": "2026-12-01T00:00:00Z"}, ("end", "2026-12-01")),
        ({"end": "2020-01-01T00:00:00Z"}, ("end", "2020-01-01")),
        ({"missed": "all"}, ("missed", "'all'")),
        ({"message": message("m", {f"{n}": "v" for n in range(1_000)})}, ("message.attributes", "1000")),
        ({"message": message("m", {"broker-dedup-id": "\0"})}, ("message.attributes", "U+0000")),
        ({"message": message("m", orderingKey="k" * 1_025)}, ("message.ordering_key", "1025")),
        ({"message": None, "template": message("{{hour}}")}, ("template", "{{hour}}")),
        ({"message": None}, ("message", "template")),
        ({"message": 7}, ("'$.message'",)),
        ({"topic": "topic"}, ("topic",)),
        ({"catchUp": True}, ('"catchUp"',)),
    ]
    where = f"{rest.project}/schedules/bad"
    for change, said in cases:
        await refused(rest, where, base | change, *said, method="PUT")
    await refused(rest, where, f'{{"timeZone": {SURROGATE}}}', "'timeZone'", r"'\ud800'", method="PUT")
    assert await rest.ok("GET", f"{rest.project}/schedules") == {}
    assert await stored(rest) == []
