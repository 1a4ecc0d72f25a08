"""Bodies of messages as pages show them."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.console.bodies import body_of, indented, preview

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
