"""The wire as real clients use it: spellings, encodings, parameters, errors (A12, D2)."""

import gzip
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.fixtures.broker import NO_TLS, Json, Rest, message, text

JSON = {"Content-Type": "application/json"}


@pytest.fixture(autouse=True)
async def subscription(rest: Rest) -> str:
    """A topic with the subscription `sub`."""
    await rest.create_topic()
    await rest.create_subscription()
    return rest.subscription()


async def post(rest: Rest, path: str, content: bytes | AsyncIterator[bytes], **headers: str) -> httpx.Response:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return await rest.call("POST", path, content=content, headers=JSON | names)


async def test_answers_are_json_of_the_services_form(rest: Rest, subscription: str) -> None:
    """A12: camelCase, 64-bit numbers and durations as strings, defaults left out."""
    response = await rest.call("GET", subscription)
    assert response.headers["content-type"].lower() == "application/json; charset=utf-8"
    assert response.json()["messageRetentionDuration"] == "604800s"
    assert not {"retainAckedMessages", "filter", "labels", "detached"} & set(response.json())


@pytest.mark.parametrize(
    ("method", "path", "code", "status"),
    [
        ("GET", "topics/missing", 404, "NOT_FOUND"),
        ("PUT", "topics/topic", 409, "ALREADY_EXISTS"),
        ("PUT", "topics/x", 400, "INVALID_ARGUMENT"),
        ("GET", "bogus", 404, "NOT_FOUND"),
        ("POST", "topics", 404, "NOT_FOUND"),
        ("POST", "topics/topic:Publish", 404, "NOT_FOUND"),
        ("POST", "topics/topic:bogus", 404, "NOT_FOUND"),
        ("DELETE", "topics", 404, "NOT_FOUND"),
        ("GET", "topics/topic/", 404, "NOT_FOUND"),
    ],
)
async def test_an_error_is_json_with_code_message_and_status(
    rest: Rest, method: str, path: str, code: int, status: str
) -> None:
    """A12: an unknown path too, so that clients can print why."""
    response = await rest.call(method, f"{rest.project}/{path}")
    assert response.status_code == code
    assert response.headers["content-type"].lower() == "application/json; charset=utf-8"
    assert set(response.json()) == {"error"}
    assert set(response.json()["error"]) <= {"code", "message", "status", "details"}
    assert response.json()["error"]["code"] == code
    assert response.json()["error"]["status"] == status
    assert response.json()["error"]["message"]


async def test_names_may_be_camel_case_or_snake_case(rest: Rest, subscription: str) -> None:
    """A12: in bodies, in nested messages, in queries and in masks."""
    created = await rest.create_subscription(
        "snake",
        ack_deadline_seconds=30,
        retry_policy={"minimum_backoff": "0s", "maximum_backoff": "0.5s"},
        expiration_policy={},
    )
    assert created["ackDeadlineSeconds"] == 30
    assert created["retryPolicy"]["maximumBackoff"] == "0.500s"
    assert created["expirationPolicy"] == {}
    await rest.publish(message("x", ordering_key="k"))
    body: Json = {"max_messages": 1, "return_immediately": True}
    (received,) = (await rest.ok("POST", f"{subscription}:pull", body))["receivedMessages"]
    assert received["message"]["orderingKey"] == "k"
    body = {"ack_ids": [received["ackId"]], "ack_deadline_seconds": 0}
    assert await rest.ok("POST", f"{subscription}:modifyAckDeadline", body) == {}
    (received,) = await rest.pull()
    assert await rest.ok("POST", f"{subscription}:acknowledge", {"ack_ids": [received["ackId"]]}) == {}
    body = {"subscription": {"ack_deadline_seconds": 40}, "update_mask": "ack_deadline_seconds"}
    assert (await rest.ok("PATCH", subscription, body))["ackDeadlineSeconds"] == 40


@pytest.mark.parametrize("number", [5, "5", 5.0, "5.0"])
async def test_a_number_may_be_a_string_or_a_whole_float(rest: Rest, subscription: str, number: Any) -> None:
    """A12: as ProtoJSON has it."""
    await rest.publish(*"abcdef")
    body = {"maxMessages": number, "returnImmediately": True}
    assert len((await rest.ok("POST", f"{subscription}:pull", body))["receivedMessages"]) == 5


async def test_a_null_is_a_field_left_out(rest: Rest) -> None:
    """A12: proto3 JSON."""
    created = await rest.create_subscription("nulls", labels=None, ackDeadlineSeconds=None, retryPolicy=None)
    assert created["ackDeadlineSeconds"] == 10
    assert not {"labels", "retryPolicy"} & set(created)


@pytest.mark.parametrize(
    "query",
    [
        "$alt=json;enum-encoding=int",
        "%24alt=json%3Benum-encoding%3Dint",
        "alt=json",
        "prettyPrint=false&key=k&quotaUser=u&access_token=x&oauth_token=y",
        "$.xgafv=2&uploadType=media&upload_protocol=raw",
    ],
)
async def test_system_parameters_are_accepted(rest: Rest, query: str) -> None:
    """A12, D2: clients send them with every call."""
    assert (await rest.ok("GET", f"{rest.topic()}?{query}"))["name"] == rest.topic()
    assert (await rest.ok("POST", f"{rest.topic()}:publish?{query}", {"messages": [message("x")]}))["messageIds"]
    body = {"maxMessages": 10, "returnImmediately": True}
    received = (await rest.ok("POST", f"{rest.subscription()}:pull?{query}", body))["receivedMessages"]
    ids = {"ackIds": [m["ackId"] for m in received]}
    assert await rest.ok("POST", f"{rest.subscription()}:acknowledge?{query}", ids) == {}


async def test_an_empty_body_is_an_empty_message(rest: Rest, subscription: str) -> None:
    """A12: a call whose fields are all in the path needs no body."""
    assert (await rest.call("PUT", rest.topic("bodyless"))).json() == {"name": rest.topic("bodyless")}
    response = await rest.call("PUT", rest.topic("content-type-only"), content=b"", headers=JSON)
    assert response.json() == {"name": rest.topic("content-type-only")}
    assert (await rest.error("POST", f"{rest.topic()}:publish"))[0] == "INVALID_ARGUMENT"
    assert await rest.ok("POST", f"{subscription}:detach") == {}
    assert (await rest.call("DELETE", rest.topic(), headers=JSON)).json() == {}


async def test_a_body_may_be_gzip_compressed(rest: Rest) -> None:
    """A12: Google's clients send large ones so."""
    body = gzip.compress(json.dumps({"messages": [message("packed" * 100)]}).encode())
    response = await post(rest, f"{rest.topic()}:publish", body, Content_Encoding="gzip")
    assert response.status_code == 200, response.text
    assert [text(m) for m in await rest.drain()] == ["packed" * 100]


async def test_a_body_that_is_not_the_gzip_it_claims_to_be_is_refused(rest: Rest) -> None:
    """A12: nothing of it is published."""
    for body in (b"{}", gzip.compress(b'{"messages":[{"data":"YQ=="}]}')[:-9]):
        response = await post(rest, f"{rest.topic()}:publish", body, Content_Encoding="gzip")
        assert response.status_code == 400, response.text
    assert await rest.pull() == []


async def test_a_small_gzip_body_of_enormous_content_is_refused(rest: Rest) -> None:
    """A12: the limit is on what it unpacks to."""
    body = gzip.compress(b'{"messages":[{"data":"' + b"A" * 40_000_000 + b'"}]}')
    response = await post(rest, f"{rest.topic()}:publish", body, Content_Encoding="gzip")
    assert response.status_code in {400, 413}, response.text
    assert await rest.pull() == []


async def test_a_body_may_come_in_chunks(rest: Rest) -> None:
    """A12: clients that stream a body give no length."""

    async def chunks() -> AsyncIterator[bytes]:
        body = json.dumps({"messages": [message("chunked")]}).encode()
        for at in range(0, len(body), 7):
            yield body[at : at + 7]

    response = await post(rest, f"{rest.topic()}:publish", chunks())
    assert response.status_code == 200, response.text
    assert [text(m) for m in await rest.drain()] == ["chunked"]


async def test_a_path_may_be_percent_encoded(rest: Rest) -> None:
    """A12: clients differ in what they encode."""
    path = rest.topic().replace("topics", "%74opics") + "%3Apublish"
    assert (await rest.ok("POST", path, {"messages": [message("x")]}))["messageIds"]
    domain = f"projects/example.com:{rest.project.removeprefix('projects/')}/topics/scoped"
    encoded = domain.replace(":", "%3A")
    assert await rest.ok("PUT", encoded, {}) == {"name": domain}
    assert await rest.ok("GET", domain) == {"name": domain}
    assert (await rest.ok("POST", f"{encoded}%3Apublish", {"messages": [message("x")]}))["messageIds"]
    assert await rest.ok("DELETE", encoded) == {}


async def test_an_encoded_at_sign_reaches_the_name_check(rest: Rest) -> None:
    """A12: %40 is @, which no topic id may have."""
    status, text_ = await rest.error("PUT", f"{rest.project}/topics/topic%40rev", {})
    assert status == "INVALID_ARGUMENT"
    assert "topic@rev" in text_


@pytest.mark.parametrize(
    "content_type", ["application/json", "application/json; charset=utf-8", "", "APPLICATION/JSON"]
)
async def test_json_may_be_declared_or_not(rest: Rest, content_type: str) -> None:
    """A12: with a charset or in capitals as well."""
    body = json.dumps({"messages": [message("x")]}).encode()
    headers = {"Content-Type": content_type} if content_type else {}
    response = await rest.call("POST", f"{rest.topic()}:publish", content=body, headers=headers)
    assert response.status_code == 200, response.text


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded"])
async def test_curl_without_a_content_type_header_is_answered_clearly(rest: Rest, content_type: str) -> None:
    """A12: Google's emulator says 404 Not Found, which helps nobody."""
    body = json.dumps({"messages": [message("x")]}).encode()
    headers = {"Content-Type": content_type}
    response = await rest.call("POST", f"{rest.topic()}:publish", content=body, headers=headers)
    assert response.status_code in {200, 400, 415}
    assert response.status_code == 200 or response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("verb", "body", "field"),
    [
        ("topics/topic:publish", {"messages": [message("x")], "bogus": 1}, "bogus"),
        ("topics/topic:publish", {"messages": [message("x") | {"datum": "x"}]}, "datum"),
        ("subscriptions/sub:pull", {"maxMessages": 1, "bogus": {}}, "bogus"),
        ("subscriptions/sub:acknowledge", {"ackIds": ["x"], "bogus": None}, "bogus"),
        ("subscriptions/sub:modifyAckDeadline", {"ackIds": ["x"], "deadline": 1}, "deadline"),
    ],
)
async def test_an_unknown_field_is_refused_and_named(rest: Rest, verb: str, body: Json, field: str) -> None:
    """A12: Google's emulator never says which."""
    status, text_ = await rest.error("POST", f"{rest.project}/{verb}", body)
    assert status == "INVALID_ARGUMENT"
    assert f'Unknown name "{field}"' in text_
    assert "Cannot find field" in text_


async def test_an_unknown_field_of_a_resource_is_refused_and_named(rest: Rest) -> None:
    """A12: a typing mistake must not be taken for a default."""
    for path, body in [
        (rest.topic("new"), {"bogus": 1}),
        (rest.subscription("new"), {"topic": rest.topic(), "retryPolicy": {"bogus": "1s"}}),
    ]:
        status, text_ = await rest.error("PUT", path, body)
        assert status == "INVALID_ARGUMENT"
        assert '"bogus"' in text_


@pytest.mark.parametrize(
    "body",
    [
        b"{", b"[]", b'"x"', b"1", b"{'messages':[]}", b'{"messages":[]} x', b'{"messages":{}}',
        b'{"messages":["x"]}',
        b'{"messages":[{"attributes":[]}]}', b'{"messages":[{"data":"YQ==","attributes":{"a":"\xff"}}]}',
        b'{"messages":[{"data":"YQ==","attributes":{"a":{}}}]}', b'{"messages":[null]}', b"[" * 100_000,
    ],
    ids=range(13),
)  # fmt: skip
async def test_a_body_that_is_not_the_message_is_refused(rest: Rest, body: bytes) -> None:
    """A12: strictly JSON, unlike Google's emulator; nothing is stored."""
    assert (await rest.error("POST", f"{rest.topic()}:publish", content=body, headers=JSON))[
        0
    ] == "INVALID_ARGUMENT"
    assert await rest.pull() == []


@pytest.mark.parametrize("duration", ["600", "10m", 600, "600.1234567890s", "s", "1e3s"])
async def test_what_is_not_a_duration_is_refused_and_named(rest: Rest, duration: Any) -> None:
    """A12: the field is in the message."""
    status, text_ = await rest.error("PUT", rest.topic("new"), {"messageRetentionDuration": duration})
    assert status == "INVALID_ARGUMENT"
    assert "essageRetentionDuration" in text_ or "message_retention_duration" in text_


async def test_a_field_of_free_form_nested_too_deep_is_refused(rest: Rest) -> None:
    """A12: whatever the depth, it is not an internal error."""
    for depth in (50, 300, 900, 1100, 50_000):
        policy = b'{"a":' * depth + b"1" + b"}" * depth
        body = b'{"messageStoragePolicy":' + policy + b"}"
        response = await rest.call("PUT", rest.topic(f"deep-{depth}"), content=body, headers=JSON)
        assert response.status_code in {200, 400}, (depth, response.text)


async def test_any_or_no_credentials_are_accepted(rest: Rest) -> None:
    """D2: a broker without access control ignores them."""
    for headers in ({}, {"Authorization": "Bearer bogus"}, {"x-goog-request-params": "topic=x"}):
        assert (await rest.ok("GET", rest.topic(), headers=headers))["name"] == rest.topic()


async def test_many_requests_share_a_connection(rest: Rest, broker_url: str) -> None:
    """D2: errors do not end it."""
    limits = httpx.Limits(max_connections=1)
    async with httpx.AsyncClient(base_url=broker_url, limits=limits, verify=NO_TLS) as client:
        ports = set()
        for path in (rest.topic(), rest.topic("missing"), "bogus", rest.topic()):
            response = await client.get(f"/v1/{path}")
            ports.add(response.extensions["network_stream"].get_extra_info("client_addr"))
    assert len(ports) == 1


async def test_a_field_in_both_spellings_is_refused(rest: Rest, subscription: str) -> None:
    """A12: one of them would be lost."""
    body = {"maxMessages": 1, "max_messages": 2, "returnImmediately": True}
    assert (await rest.error("POST", f"{subscription}:pull", body))[0] == "INVALID_ARGUMENT"
