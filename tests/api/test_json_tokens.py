"""How a body that would become too many objects is told from a large one, in one pass whatever it is."""

import json

import pytest

from broker.access.principals.policy import MAX_MEMBERS
from broker.api.rest.codec import requests
from broker.core.acking import rest as acknowledge
from broker.core.publishing.rest import MAX_TOKENS, decode_publish
from broker.model.ack_id import MAX_ACK_BYTES, MAX_ACK_IDS, AttemptName, make_ack_ids
from broker.model.errors import InvalidArgument

_SIZE = 10_000_000  # about the largest body


@pytest.mark.parametrize(
    "body",
    [
        b"{" * 100_001 + b'"' + b'\\"' * (_SIZE // 2),
        b"[" * MAX_TOKENS + b'"' + b"\\" * _SIZE,
        b'"' * _SIZE,
        b'\\"' * (_SIZE // 2),
        b'{"messages":[{"data":"' + b'","' * (_SIZE // 3),
    ],
    ids=["a string that does not end", "backslashes", "quotes", "escaped quotes", "strings"],
)
def test_what_is_no_json_is_refused_soon(body: bytes) -> None:
    """The first stopped a process for minutes, with 200 KB."""
    with pytest.raises(InvalidArgument, match=r"Invalid JSON payload received|more than 4000 JSON objects"):
        decode_publish(body)


@pytest.mark.parametrize("message", ["{}", '{"data":"eA==","attributes":{"a":"{{{{"}}'])
def test_a_publish_of_too_many_messages_is_refused_before_they_are_made(message: str) -> None:
    def publish(count: int) -> bytes:
        return f'{{"messages":[{",".join([message] * count)}]}}'.encode()

    with pytest.raises(InvalidArgument, match="more than 4000 JSON objects"):
        decode_publish(publish(4_001))
    assert len(decode_publish(publish(1_000))) == 1_000


def test_the_largest_policy_has_fewer_tokens_than_may_be() -> None:
    bindings = [{"role": "roles/viewer", "members": ["user:a@b.c"]}] * MAX_MEMBERS
    body = json.dumps({"policy": {"bindings": bindings}}).encode()
    assert requests.decode_json(body + b" " * requests.MAX_TOKENS)["policy"]["bindings"] == bindings
    with pytest.raises(InvalidArgument, match="more than 20000 strings"):
        requests.decode_json(json.dumps(["x"] * 10_001).encode())


@pytest.mark.parametrize("text", ['{["\\"' * 200, ",," * 500, "\\\\" * 500, "\n\u2028" * 300])
def test_what_stands_in_strings_does_not_count(text: str) -> None:
    attributes = {f"a{index}": text for index in range(20)}
    messages = [{"attributes": attributes}] * 500
    decoded = decode_publish(json.dumps({"messages": messages}).encode())
    assert [message.attributes for message in decoded] == [attributes] * 500


def test_as_many_ack_ids_as_fit_into_a_body_are_no_more_than_may_be() -> None:
    [shortest] = make_ack_ids(AttemptName(subscription_id=1, shard_id=1, attempt_id=1, count=1), [0])
    assert len(shortest) * MAX_ACK_IDS <= MAX_ACK_BYTES < (len(shortest) + 1) * MAX_ACK_IDS
    assert 2 * MAX_ACK_BYTES // len(f'"{shortest}",') < acknowledge.MAX_TOKENS
