"""What Google's service promises of a push: the request, and which answers acknowledge it.

As https://cloud.google.com/pubsub/docs/push says;
docs/compared-with-the-emulator.md has what the emulator does instead.
"""

import base64
import json
from typing import Any

import pytest

from tests.fixtures.broker import Json, message, text
from tests.fixtures.push_sink import Received
from tests.fixtures.pushes import Pushes, pushed, side_by_side

pytestmark = pytest.mark.asyncio(loop_scope="module")

ONE = base64.b64encode(b"one").decode()
METADATA: Json = {"noWrapper": {"writeMetadata": True}}
ACKS = ("/status/102", "/status/200", "/status/201", "/status/202", "/status/204", "/then/100/200", "/then/103/204")
NACKS = (
    *(f"/status/{n}" for n in (203, 205, 206, 299, 300, 304, 400, 401, 403, 404, 409, 422, 429, 451)),
    *(f"/status/{n}" for n in (500, 501, 502, 503, 504, 599)),
    *(f"/redirect/{n}" for n in (301, 302, 303, 307, 308)),
    *("/reset", "/close", "/garbage", "/then/103/503"),
)


async def sibling(pushes: Pushes, **fields: Any) -> list[Json]:
    """The same messages as a pull subscription hands them out."""
    return [received["message"] for received in await pushes.rest.pull("pulled", 1000)]


# --- the wrapped request ----------------------------------------------------------------------------------


@side_by_side
async def test_the_wrapped_request_holds_the_message_in_both_spellings(pushes: Pushes) -> None:
    """A8: data, attributes, id and time, and the full name of the subscription; nothing else."""
    await pushes.rest.create_subscription("pulled")
    path = await pushes.subscribe()
    attributes = {
        "k": "v",
        "empty": "",
        "schlüssel": "wert ☃ \U0001f600",
        'quo"te\\/': 'a"b\\c/<&>\r\n\t\u2028\x01',
    }
    [message_id] = await pushes.rest.publish(message("grüße ☃", attributes))
    [request] = await pushes.wait_for(path, 1)
    [same] = await sibling(pushes)
    assert request.json == {
        "message": {
            "data": base64.b64encode("grüße ☃".encode()).decode(),
            "attributes": attributes,
            "messageId": message_id,
            "message_id": message_id,
            "publishTime": same["publishTime"],
            "publish_time": same["publishTime"],
        },
        "subscription": pushes.rest.subscription(),
    }
    assert len(json.loads(request.body, object_pairs_hook=list)) == 2, "no name twice"


@side_by_side
async def test_the_wrapped_request_of_an_empty_message(pushes: Pushes) -> None:
    """A8: without data, without attributes; whether empty ones are left out is not documented."""
    path = await pushes.subscribe()
    await pushes.rest.publish(message("", {"k": ""}))
    await pushes.rest.publish("x")
    bodies = {pushed(r): r.json["message"] for r in await pushes.wait_for(path, 2)}
    assert bodies[""]["attributes"] == {"k": ""}
    assert bodies["x"].get("attributes", {}) == {}
    assert all("orderingKey" not in body for body in bodies.values())


@side_by_side
async def test_every_byte_of_the_data_arrives(pushes: Pushes) -> None:
    """A8: as padded base64 of the standard alphabet, and raw without the wrapper."""
    datas = [bytes(range(256))[:n] for n in (1, 2, 3, 255, 256)] + [b"\xff" * 100_000]
    wrapped = await pushes.subscribe()
    raw = await pushes.subscribe(name="raw", pushConfig={"noWrapper": {}})
    for data in datas:
        await pushes.rest.publish({"data": base64.b64encode(data).decode()})
    arrived = [r.json["message"]["data"] for r in await pushes.wait_for(wrapped, len(datas))]
    assert sorted(arrived) == sorted(base64.b64encode(data).decode() for data in datas)
    assert sorted(r.body for r in await pushes.wait_for(raw, len(datas))) == sorted(datas)


@side_by_side
async def test_a_message_of_the_largest_size_is_pushed(pushes: Pushes) -> None:
    """A8: all of its bytes arrive in one request."""
    path = await pushes.subscribe()
    await pushes.rest.publish("x" * 7_500_000)
    [request] = await pushes.wait_for(path, 1)
    assert len(pushed(request)) == 7_500_000


@side_by_side
async def test_the_headers_are_those_of_googles_senders(pushes: Pushes) -> None:
    """A8: receivers check the user agent."""
    path = await pushes.subscribe()
    await pushes.rest.publish(message("x", {"attribute": "none of the headers"}))
    [request] = await pushes.wait_for(path, 1)
    assert request.headers["content-type"] == "application/json"
    assert request.headers["accept"] == "application/json"
    assert request.headers["from"] == "noreply@google.com"
    assert "APIs-Google" in request.headers["user-agent"]
    assert request.headers["content-length"] == str(len(request.body))
    assert request.headers.keys() & {"authorization", "attribute", "cookie", "transfer-encoding"} == set()
    assert not [name for name in request.headers if name.startswith("x-goog-pubsub")]


@side_by_side
async def test_the_ordering_key_is_in_the_request(pushes: Pushes) -> None:
    """A8: also where the subscription does not order."""
    paths = [await pushes.subscribe(), await pushes.subscribe(name="ordered", enableMessageOrdering=True)]
    await pushes.rest.publish(message("x", orderingKey="schlüssel 1"))
    for path in paths:
        [request] = await pushes.wait_for(path, 1)
        assert request.json["message"]["orderingKey"] == "schlüssel 1"


@side_by_side
async def test_the_delivery_attempt_counts_from_one_with_a_dead_letter_policy_only(pushes: Pushes) -> None:
    """A8, A5: without a policy the request has no such field."""
    await pushes.rest.create_topic("dead")
    policy = {"deadLetterTopic": pushes.rest.topic("dead"), "maxDeliveryAttempts": 10}
    answers = ("/status/500", "/status/404", "/redirect/302", "/status/200")
    with_policy = await pushes.subscribe(*answers, deadLetterPolicy=policy)
    without = await pushes.subscribe(*answers, name="without")
    await pushes.rest.publish("x")
    assert [r.json["deliveryAttempt"] for r in await pushes.wait_for(with_policy, 4)] == [1, 2, 3, 4]
    assert all("deliveryAttempt" not in r.json for r in await pushes.wait_for(without, 4))


@side_by_side
async def test_the_endpoints_query_is_kept_and_its_fragment_is_not_sent(pushes: Pushes) -> None:
    """A8: token=… in the query is how receivers used to authenticate pushes."""
    path = pushes.path()
    await pushes.subscribe(pushConfig={"pushEndpoint": f"{pushes.sink.url}{path}?token=a%20b%2Fc&x=%C3%BC+1#part"})
    await pushes.rest.publish("x")
    [request] = await pushes.wait_for(path, 1)
    assert request.target == f"{path}?token=a%20b%2Fc&x=%C3%BC+1"
    assert request.headers["host"] == pushes.sink.url.removeprefix("http://")


# --- without the wrapper ----------------------------------------------------------------------------------


@side_by_side
async def test_an_unwrapped_request_is_the_data_and_tells_nothing_else(pushes: Pushes) -> None:
    """A8: no metadata unless it is asked for."""
    path = await pushes.subscribe(pushConfig={"noWrapper": {}})
    await pushes.rest.publish(message('{"a": 1}', {"k": "v"}, orderingKey="key"))
    [request] = await pushes.wait_for(path, 1)
    assert request.body == b'{"a": 1}'
    assert "k" not in request.headers
    assert not [name for name in request.headers if name.startswith("x-goog-pubsub")]


@side_by_side
async def test_metadata_is_sent_as_headers(pushes: Pushes) -> None:
    """A8: with the full name of the subscription, and each attribute by its own name."""
    await pushes.rest.create_subscription("pulled")
    path = await pushes.subscribe(pushConfig=METADATA)
    await pushes.rest.publish(message("x", {"env": "prod", "Some-Name": "a, b; c=d"}, orderingKey="key"))
    await pushes.rest.publish(message("", {"only": "attributes"}))
    requests = {r.body: r.headers for r in await pushes.wait_for(path, 2)}
    for same in await sibling(pushes):
        headers = requests[text(same).encode()]
        assert headers["x-goog-pubsub-subscription-name"] == pushes.rest.subscription()
        assert headers["x-goog-pubsub-message-id"] == same["messageId"]
        assert headers["x-goog-pubsub-publish-time"] == same["publishTime"]
        assert headers.get("x-goog-pubsub-ordering-key") == same.get("orderingKey")
        assert {k.lower(): v for k, v in same["attributes"].items()}.items() <= headers.items()
    assert requests[b""]["content-length"] == "0"


HOSTILE = {
    "Host": "evil.example",
    "Content-Length": "1",
    "Transfer-Encoding": "chunked",
    "Connection": "close",
    "Content-Type": "text/evil",
    "Expect": "100-continue",
    "Upgrade": "h2c",
    "TE": "trailers",
    "Authorization": "Bearer evil",
    "User-Agent": "evil",
    "x-goog-pubsub-message-id": "0",
    "X-Goog-Pubsub-Subscription-Name": "evil",
    "x-goog-pubsub-publish-time": "evil",
    "Content-Encoding": "gzip",
    "a b": "1",
    "a:b": "2",
    "a\r\nInjected-1": "3",
    "ключ": "4",
    "": "5",
    "a(b)": "6",
    ":path": "7",
    "cr": "x\rInjected-2: 1",
    "lf": "x\nInjected-3: 1",
    "crlf": "x\r\nInjected-4: 1\r\n\r\nGET / HTTP/1.1",
    "snow": "☃",
    "latin": "\xfc",
    "del": "\x7f",
    "bell": "\x07",
    "tab": "a\tb",
    "spaces": "  ",
}


@side_by_side
async def test_hostile_attributes_neither_break_a_request_nor_change_what_it_says(pushes: Pushes) -> None:
    """A8: those that are no legal headers are left out."""
    path = await pushes.subscribe(pushConfig=METADATA, name="victim")
    attributes = {key: value for key, value in HOSTILE.items() if key}
    plain = await pushes.subscribe(pushConfig={"noWrapper": {}}, name="plain")
    [message_id] = await pushes.rest.publish(message("the data", attributes | {"good": "yes"}))
    [request] = await pushes.wait_for(path, 1)
    [harmless] = await pushes.wait_for(plain, 1)
    assert request.body == b"the data"
    headers = request.headers
    assert headers.pop("content-type") in ("text/evil", harmless.headers["content-type"]), "as the publisher says"
    for name in ("host", "content-length", "user-agent"):
        assert headers[name] == harmless.headers[name], name
    assert headers["x-goog-pubsub-message-id"] == message_id
    assert headers["x-goog-pubsub-subscription-name"] == pushes.rest.subscription("victim")
    assert headers["x-goog-pubsub-publish-time"] != "evil"
    assert headers["good"] == "yes"
    refused = {"transfer-encoding", "expect", "upgrade", "authorization", "a b", "a", ":path", "cr", "lf", "crlf"}
    assert headers.keys() & refused == set()
    assert not [name for name in headers if "injected" in name]
    assert "evil" not in str(headers.values())


@side_by_side
async def test_attributes_at_their_limits_are_all_sent_as_headers(pushes: Pushes) -> None:
    """A8: 100 of them, names of 256 bytes, values of 1,024."""
    path = await pushes.subscribe(pushConfig=METADATA)
    attributes = {f"{n:03}".ljust(256, "k"): "v" * 1024 for n in range(99)} | {"none": ""}
    await pushes.rest.publish(message("x", attributes))
    [request] = await pushes.wait_for(path, 1)
    assert attributes.items() <= request.headers.items()


# --- answers ----------------------------------------------------------------------------------------------


async def answered(pushes: Pushes, *first: str, redelivered: bool = False) -> list[list[Received]]:
    """The requests to one endpoint per answer in `first`, after a second message was delivered.

    The endpoint gives that answer to its first request only.  With `redelivered`, the first message is waited for
    again, because a fresh message overtakes one that is backing off.
    """
    paths = [await pushes.path_with(answer, "/status/200") for answer in first]
    for n, path in enumerate(paths):
        config = {"pushEndpoint": pushes.sink.url + path}
        await pushes.rest.create_subscription(f"sub{n}", pushConfig=config)
    await pushes.rest.publish("first")
    for path in paths:
        await pushes.wait_for(path, 1)
    await pushes.rest.publish("second")
    for path in paths:
        await pushes.until_taken(path, "second")
        if redelivered:
            await pushes.until_taken(path, "first")
    return [await pushes.sink.requests(path) for path in paths]


@side_by_side
async def test_102_200_201_202_and_204_acknowledge(pushes: Pushes) -> None:
    """A8: also after an informational response that means nothing."""
    for answer, requests in zip(ACKS, await answered(pushes, *ACKS), strict=True):
        assert [pushed(r) for r in requests] == ["first", "second"], answer


@side_by_side
async def test_every_other_answer_is_a_nack_and_redirects_are_not_followed(pushes: Pushes) -> None:
    """A8: the message comes again, and nothing goes to where the redirect leads."""
    for answer, requests in zip(NACKS, await answered(pushes, *NACKS, redelivered=True), strict=True):
        assert sorted(pushed(r) for r in requests) == ["first", "first", "second"], answer
    assert await pushes.sink.requests("/status/200/redirected") == []


@side_by_side
async def test_an_answer_that_never_ends_or_is_cut_off_stops_nothing(pushes: Pushes) -> None:
    """A8: the status has been said; what comes behind it is not waited for, nor kept."""
    answers = ("/huge-body", "/bomb", "/cut-body", "/slow-body", "/extra", "/huge-headers")
    for answer, requests in zip(answers, await answered(pushes, *answers), strict=True):
        allowed = 2 if answer in ("/cut-body", "/huge-headers") else 1  # nothing documents what these are
        assert 1 <= [pushed(r) for r in requests].count("first") <= allowed, answer


@side_by_side
async def test_a_body_in_the_answer_changes_nothing(pushes: Pushes) -> None:
    """A8: only the status counts; a cookie is not sent back."""
    answers = ("/body/200/error", "/body/201/%7B%22error%22%3A500%7D", "/cookie")
    for requests in await answered(pushes, *answers):
        assert [pushed(r) for r in requests] == ["first", "second"]
        assert all("cookie" not in r.headers for r in requests)


@side_by_side
async def test_a_connection_that_breaks_when_it_is_used_again_loses_nothing(pushes: Pushes) -> None:
    """A8, A4: the message is sent again on a new one."""
    paths = [
        await pushes.subscribe(f"/{kind}-on-reuse", name=kind, retryPolicy={"minimumBackoff": "0s"})
        for kind in ("close", "reset")
    ]
    texts = [str(n) for n in range(5)]
    await pushes.rest.publish(*texts)
    for path in paths:
        await pushes.until_taken(path, *texts)


@side_by_side
async def test_an_endpoint_that_is_not_there_is_tried_again_and_what_waits_goes_to_the_next(pushes: Pushes) -> None:
    """A8: a closed port, a name that does not exist, TLS to who cannot prove a name."""
    endpoints = ["http://127.0.0.1:9/x", "http://nobody.invalid/x", pushes.sink.tls_url + "/x"]
    for n, endpoint in enumerate(endpoints):
        await pushes.rest.create_subscription(f"sub{n}", pushConfig={"pushEndpoint": endpoint})
    await pushes.rest.publish("x")
    for n in range(len(endpoints)):
        path = pushes.path()
        await pushes.push_to(path, f"sub{n}")
        assert await pushes.texts(path, 1) == ["x"]
