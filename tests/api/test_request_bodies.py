"""What a request's body may begin with, and what is said about bytes that are not UTF-8."""

import msgspec
import pytest

from broker.api.rest.codec.requests import decode_json, decode_request
from broker.model.errors import InvalidArgument


class Request(msgspec.Struct):
    text: str = ""


_DECODER = msgspec.json.Decoder(Request)


@pytest.mark.parametrize("body", [b'{"text": "a"}', '\ufeff{"text": "a"}'.encode()])
def test_a_byte_order_mark_is_ignored(body: bytes) -> None:
    """Editors and shells on Windows write one: https://github.com/Badgerati/Pode/issues/1604."""
    assert decode_request(_DECODER, body) == Request("a")
    assert decode_json(body) == {"text": "a"}


def test_a_body_of_a_byte_order_mark_alone_is_empty() -> None:
    assert decode_request(_DECODER, "\ufeff".encode()) == Request()


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_other_encodings_are_refused(encoding: str) -> None:
    with pytest.raises(InvalidArgument, match="Invalid JSON payload received"):
        decode_request(_DECODER, '{"text": "a"}'.encode(encoding))


@pytest.mark.parametrize(("body", "at"), [(b'{"text": "a\xff"}', 11), (b'{"other": "", "text": "\xe9"}', 23)])
def test_a_byte_that_is_not_utf_8_is_named_by_its_place_in_the_body(body: bytes, at: int) -> None:
    assert body[at] > 0x7F
    with pytest.raises(InvalidArgument, match=rf"not UTF-8 \(byte {at}\)"):
        decode_request(_DECODER, body)
