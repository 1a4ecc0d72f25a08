"""The request that carries a message to an endpoint."""

import base64
import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from broker.access.secrets.secrets import Secrets
from broker.core.pushing.request.attribute_headers import DROPPED, DROPPED_PREFIXES, attribute_headers
from broker.core.pushing.request.digest_envelope import DigestItem, failed_message_ids
from broker.core.pushing.request.envelope import Envelope, PushRequest
from broker.model.delivery import StoredMessage
from broker.model.push_config import Digest, NoWrapper, PubsubWrapper, PushConfig, PushOptions
from broker.model.subscription import DeadLetterPolicy, Extensions, Subscription
from tests.fixtures.broker import repository

PUBLISHED = datetime(2021, 2, 26, 19, 13, 55, 749_000, tzinfo=UTC)
SECRETS = tuple("whsec_" + base64.b64encode(bytes([i]) * 32).decode() for i in (1, 2))
POLICY = {"dead_letter_policy": DeadLetterPolicy(dead_letter_topic="projects/p/topics/d", max_delivery_attempts=5)}


def subscription(*, secrets: tuple[str, ...] = (), digest: Digest | None = None, **config: Any) -> Subscription:
    return Subscription(
        subscription_id=7,
        name="projects/p/subscriptions/s",
        topic="projects/p/topics/t",
        push_config=PushConfig(**{"endpoint": "https://example.com/push?a=b#part", **config}),
        extensions=Extensions(push=PushOptions(webhook_secrets=secrets, digest=digest)),
    )


def message(
    attributes: dict[str, str] | None = None, data: bytes = b"hello", key: str | None = None
) -> StoredMessage:
    return StoredMessage(
        seq=42, publish_time=PUBLISHED, ordering_key=key, attributes=json.dumps(attributes or {}), data=data
    )


def request(to: Subscription, what: StoredMessage, attempt: int = 1, token: str | None = None) -> PushRequest:
    return Envelope(to, Secrets()).request(
        what, shard_id=3, attempt_number=attempt, now=datetime.now(UTC), token=token
    )


def test_a_wrapped_message_is_googles_json() -> None:
    made = request(subscription(), message({"key": "välue"}, key="k"))
    assert json.loads(made.body) == {
        "message": {
            "attributes": {"key": "välue"},
            "data": "aGVsbG8=",
            "messageId": "3000000000000042",
            "message_id": "3000000000000042",
            "orderingKey": "k",
            "publishTime": "2021-02-26T19:13:55.749Z",
            "publish_time": "2021-02-26T19:13:55.749Z",
        },
        "subscription": "projects/p/subscriptions/s",
    }
    assert made.headers == {
        "Content-Type": "application/json",
        "Accept": "application/json",
        "From": "noreply@google.com",
        "User-Agent": "APIs-Google; (+https://developers.google.com/webmasters/APIs-Google.html)",
    }
    assert not made.want_body


def test_the_url_keeps_its_query_and_loses_its_fragment() -> None:
    assert request(subscription(), message()).url == "https://example.com/push?a=b"


def test_empty_attributes_and_data_are_there_and_an_absent_ordering_key_is_not() -> None:
    wrapped = json.loads(request(subscription(pubsub_wrapper=PubsubWrapper()), message(data=b"")).body)["message"]
    assert wrapped["attributes"] == {}
    assert wrapped["data"] == ""
    assert "orderingKey" not in wrapped


def test_the_delivery_attempt_is_shown_with_a_dead_letter_policy_only() -> None:
    """As to who pulls: also while the topic does not exist."""
    plain = subscription()
    with_policy = replace(plain, **POLICY, dead_letter_topic_id=9)
    without_topic = replace(plain, **POLICY)
    for shown in (with_policy, without_topic):
        assert json.loads(request(shown, message(), attempt=3).body)["deliveryAttempt"] == 3
    assert "deliveryAttempt" not in json.loads(request(plain, message(), attempt=3).body)


def test_messages_of_other_times_show_their_own() -> None:
    envelope, shown = Envelope(subscription(), Secrets()), []
    for seconds in (0, 0, 1):
        what = message()
        what.publish_time += timedelta(seconds=seconds)
        body = envelope.request(what, shard_id=1, attempt_number=1, now=datetime.now(UTC), token=None).body
        shown.append(json.loads(body)["message"]["publishTime"][17:19])
    assert shown == ["55", "55", "56"]


def test_the_token_is_the_authorization_and_none_takes_it_away() -> None:
    envelope, shown = Envelope(subscription(), Secrets()), []
    for token in ("one", "one", "two", None):
        made = envelope.request(message(), shard_id=1, attempt_number=1, now=datetime.now(UTC), token=token)
        shown.append(made.headers.get("Authorization"))
    assert shown == ["Bearer one", "Bearer one", "Bearer two", None]
    unwrapped = request(subscription(no_wrapper=NoWrapper()), message(), token="one")
    assert unwrapped.headers["Authorization"] == "Bearer one"


def test_an_unwrapped_message_is_its_data_without_metadata() -> None:
    made = request(subscription(no_wrapper=NoWrapper()), message({"key": "value"}, b"\x00\xff", key="k"))
    assert made.body == b"\x00\xff"
    assert made.headers["Content-Type"] == "application/octet-stream"
    assert set(made.headers) == {"Content-Type", "Accept", "From", "User-Agent"}


def test_metadata_of_an_unwrapped_message_are_headers() -> None:
    to = subscription(no_wrapper=NoWrapper(write_metadata=True))
    made = request(to, message({"k": "v", "content-type": "text/plain"}, key="the key"))
    assert made.headers["x-goog-pubsub-subscription-name"] == "projects/p/subscriptions/s"
    assert made.headers["x-goog-pubsub-message-id"] == "3000000000000042"
    assert made.headers["x-goog-pubsub-publish-time"] == "2021-02-26T19:13:55.749Z"
    assert made.headers["x-goog-pubsub-ordering-key"] == "the key"
    assert made.headers["k"] == "v"
    assert made.headers["Content-Type"] == "text/plain"
    assert len({name.lower() for name in made.headers}) == len(made.headers)


@pytest.mark.parametrize("key", ["a\r\nX-Evil: 1", "ключ", " padded ", "\x7f"])
def test_an_ordering_key_that_cannot_be_a_header_is_left_out(key: str) -> None:
    made = request(subscription(no_wrapper=NoWrapper(write_metadata=True)), message(key=key))
    assert "x-goog-pubsub-ordering-key" not in made.headers
    assert "x-goog-pubsub-message-id" in made.headers


@pytest.mark.parametrize(
    "name",
    ["Host", "Content-Length", "transfer-encoding", "Connection", "TE", "Upgrade", "trailer", "Expect",
     "Keep-Alive", "Authorization", "Proxy-Authorization", "User-Agent", "From", "Cookie", "with space", "",
     "na\tme", "näme", "a:b", "a\r\nb"],
)  # fmt: skip
def test_an_attribute_that_is_no_header_of_its_own_is_left_out(name: str) -> None:
    assert attribute_headers({name: "v", "fine": "v"}) == {"fine": "v"}


@pytest.mark.parametrize(
    "name",
    ["Proxy", "X-Forwarded-For", "X-Forwarded", "Forwarded", "Via", "X-Real-IP", "True-Client-IP",
     "CF-Connecting-IP", "X-HTTP-Method-Override", "X-Original-URL", "X-Rewrite-URL", "X-Remote-User",
     "X-Middleware-Subrequest", "X-Goog-PubSub-Message-Id", "X-Goog-Authenticated-User-Email",
     "X-Goog-IAP-JWT-Assertion", "X-Serverless-Authorization", "X-AppEngine-QueueName", "X-CloudScheduler",
     "X-CloudTasks-QueueName", "Webhook-Signature", "X-Auth-Request-Email", "X-MS-CLIENT-PRINCIPAL",
     "X-Forwarded-Client-Cert", "Sec-Fetch-Site"],
)  # fmt: skip
@pytest.mark.parametrize("sign", ["-", "_", ".", "~"])
def test_an_attribute_that_passes_for_a_proxy_a_platform_or_the_broker_is_left_out(name: str, sign: str) -> None:
    """CGI and WSGI read X_Forwarded_For as X-Forwarded-For; some servers every other sign, too."""
    for spelling in (name, name.lower(), name.upper()):
        assert attribute_headers({spelling.replace("-", sign): "v", "fine": "v"}) == {"fine": "v"}


def test_attributes_that_receivers_are_meant_to_read_are_headers_as_they_are_spelt() -> None:
    names = ["event_type", "Content-Type", "content-encoding", "traceparent", "ce-type", "X-Api-Key", "proxied",
             "forwarded_by", "cookies", "origin", "date", "x-request-id", "Idempotency-Key"]  # fmt: skip
    assert list(attribute_headers(dict.fromkeys(names, "v"))) == names


def test_the_documented_list_of_dropped_headers_is_the_one_in_force() -> None:
    section = (repository() / "docs" / "operations.md").read_text().split("**What a push carries.**")[1]
    named = set(re.findall(r"`([a-z0-9*-]+)`", section.split("\n\n")[1]))
    assert named == DROPPED | {f"{prefix}*" for prefix in DROPPED_PREFIXES}


@pytest.mark.parametrize("value", ["a\r\nb", "a\nb", "\0", "ä", " a", "a ", "\x7f"])
def test_an_attribute_whose_value_is_illegal_in_a_header_is_left_out(value: str) -> None:
    assert attribute_headers({"bad": value, "fine": "a b\tc", "empty": ""}) == {"fine": "a b\tc", "empty": ""}


def test_of_attributes_that_differ_in_case_only_the_first_is_a_header() -> None:
    assert attribute_headers({"Key": "1", "key": "2"}) == {"Key": "1"}


@pytest.mark.parametrize("no_wrapper", [None, NoWrapper()])
@pytest.mark.parametrize("secret", SECRETS)
def test_the_reference_library_verifies_each_secrets_signature(secret: str, no_wrapper: NoWrapper | None) -> None:
    made = request(subscription(secrets=SECRETS, no_wrapper=no_wrapper), message(data=b'{"a": 1}'))
    assert Webhook(secret).verify(made.body.decode(), dict(made.headers)) == json.loads(made.body)
    assert len(made.headers["webhook-signature"].split(" ")) == 2
    with pytest.raises(WebhookVerificationError):
        Webhook(secret).verify(made.body.decode() + " ", dict(made.headers))


def test_the_webhook_id_stays_over_attempts_and_differs_between_subscriptions() -> None:
    ours, theirs = subscription(secrets=SECRETS), replace(subscription(secrets=SECRETS), subscription_id=8)
    ids = [
        request(to, message(), attempt).headers["webhook-id"] for to, attempt in ((ours, 1), (ours, 2), (theirs, 1))
    ]
    assert ids[0] == ids[1] != ids[2]


def test_a_message_that_came_later_has_its_own_id_in_a_digest() -> None:
    later = msgspec.structs.replace(message(), id_seq=500_000_000_000_007)
    made = Envelope(subscription(), Secrets()).digest(
        [DigestItem(later, shard_id=3, attempt_number=1)], now=datetime.now(UTC), token=None
    )
    [entry] = json.loads(made.body)["messages"]
    assert entry["message"]["messageId"] == "3500000000000007"


def test_a_digest_carries_its_messages_as_single_ones_are() -> None:
    to = replace(subscription(secrets=SECRETS), **POLICY, dead_letter_topic_id=9)
    items = [DigestItem(message({"n": str(n)}), shard_id=n, attempt_number=n) for n in (1, 2)]
    made = Envelope(to, Secrets()).digest(items, now=datetime.now(UTC), token="t")
    single = [json.loads(request(to, item.message).body)["message"] for item in items]
    for n, one in enumerate(single, 1):
        one["messageId"] = one["message_id"] = f"{n}000000000000042"
    assert json.loads(made.body) == {
        "subscription": "projects/p/subscriptions/s",
        "messages": [{"message": one, "deliveryAttempt": n} for n, one in enumerate(single, 1)],
    }
    assert made.want_body
    assert made.headers["Authorization"] == "Bearer t"
    Webhook(SECRETS[1]).verify(made.body.decode(), dict(made.headers))


@pytest.mark.parametrize(
    ("body", "failed"),
    [
        (b'{"failedMessageIds": ["1", "2"], "more": true}', {"1", "2"}),
        (b'{"failedMessageIds": []}', set()),
        (b"{}", set()),
        (b"", set()),
        (b"OK", set()),
        (b"[1]", set()),
        (b"null", set()),
        (b'{"failedMessageIds": "1"}', set()),
        (b'{"failedMessageIds": [1]}', set()),
        (b'{"failedMessageIds": ["1"', set()),
        (b'"\xff"', set()),
        (b"[" * 60_000, set()),
        (b'{"a":' * 13_000, set()),
    ],
)
def test_the_answer_to_a_digest_names_failed_messages_or_none(body: bytes, failed: set[str]) -> None:
    assert failed_message_ids(body) == failed
