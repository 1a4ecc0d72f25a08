"""Bodies of messages as pages show them."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.console.bodies import body_of, indented, preview
from broker.console.links import links_of

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


@given(_JSON)
def test_indented_json_has_the_same_value(value: object) -> None:
    assert json.loads(indented(json.dumps(value))) == value


@given(st.text())
def test_text_keeps_what_is_not_white_space(text: str) -> None:
    shown = indented(text)
    assert "".join(shown.split()) == "".join(text.split())


@given(st.binary(max_size=2_000), st.sampled_from(["", "json", "text", "hex"]))
def test_any_bytes_can_be_shown_without_control_characters(data: bytes, view: str) -> None:
    body = body_of(encoded(data), view, 1_000)
    assert body.size == len(data)
    assert body.shown == min(len(data), 1_000)
    assert all(char.isprintable() or char in "\n\t" for char in body.text)
    assert "\n" not in preview(encoded(data))


def test_a_character_that_is_cut_off_is_left_out() -> None:
    assert body_of(encoded("aé".encode()), "text", 2).text == "a"


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"a":' * 20_000, b'"' * 65_536, b"\\" * 65_536])
def test_bodies_that_would_grow_are_not_indented(body: bytes) -> None:
    assert len(body_of(encoded(body), "json").text) <= 4 * 65_536


def test_bytes_are_shown_in_hex() -> None:
    body = body_of(encoded(b"\xff\x00Hello"))
    assert body.kind == "bytes"
    assert body.text == "00000000  ff 00 48 65 6c 6c 6f                             ..Hello"


def test_links_have_the_values_of_the_message_encoded_and_none_is_made_of_a_missing_or_masked_one() -> None:
    message = {
        "messageId": "7",
        "attributes": {
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "order": "a/b?<\"'>",
            "card": "[masked]",
        },
    }
    urls = {
        "https://t.example/{traceId}": "https://t.example/0af7651916cd43dd8448eb211c80319c",
        "https://o.example/?o={attributes.order}&m={messageId}": ("https://o.example/?o=a%2Fb%3F%3C%22%27%3E&m=7"),
        "https://o.example/{orderingKey}": None,
        "https://o.example/{attributes.none}": None,
        "https://o.example/{attributes.card}": None,
        "javascript:alert(1)": None,
    }
    for url, expected in urls.items():
        template = {"name": "projects/p/linkTemplates/x", "title": "X", "url": url, "topics": ["ord*"]}
        found = links_of([template], "projects/p/topics/orders", message, {"attributes": ["card"]})
        assert [link.url for link in found] == ([] if expected is None else [expected])
        assert not links_of([template], "projects/p/topics/others", message, None)
