"""How a body that would become too many objects is told from a large one, in one pass whatever it is."""

import json

import pytest

from broker.domain.ack_id import AttemptName, make_ack_ids
from broker.domain.errors import InvalidArgument
from broker.domain.payload import MAX_PAYLOAD_BYTES
from broker.front.rest.codec.publish import decode_publish
from broker.front.rest.codec.requests import MAX_TOKENS

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
    with pytest.raises(InvalidArgument, match="Invalid JSON payload received"):
        decode_publish(body)


@pytest.mark.parametrize("text", ['{["\\"' * 200, ",," * 500, "\\\\" * 500, "\n\u2028" * 300])
def test_what_stands_in_strings_does_not_count(text: str) -> None:
    attributes = {f"a{index}": text for index in range(20)}
    messages = [{"attributes": attributes}] * 500
    decoded = decode_publish(json.dumps({"messages": messages}).encode())
    assert [message.attributes for message in decoded] == [attributes] * 500


def test_as_many_ack_ids_as_fit_into_a_body_are_no_more_than_may_be() -> None:
    [shortest] = make_ack_ids(AttemptName(subscription_id=1, shard_id=1, attempt_id=1, count=1), [0])
    assert 2 * MAX_PAYLOAD_BYTES // len(f'"{shortest}",') < MAX_TOKENS
