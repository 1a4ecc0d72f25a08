"""What is done to fields without JavaScript: read, refused, and done (A11)."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.features.transforms.sandbox.fields import FieldEdits
from broker.features.transforms.sandbox.jobs import Ending, Message, Outcome
from broker.model.errors import InvalidArgument
from broker.model.field_transform import MAX_FIELDS_BYTES, Fields, plan_of

ORDER = b"""{"id": "A-17", "total": 100.50, "big": 12345678901234567890123, "customer": {"name": "Ann",
"card": {"number": "4111", "cvc": 1}}, "lines": [{"sku": "x", "price": 1e2}, [{"sku": "y"}], 7], "note": null}"""
KEPT = '"customer":{"name":"Ann","card":{"number":"4111","cvc":1}}'


def outcome(fields: dict[str, Any], data: bytes = ORDER, **attributes: str) -> Outcome:
    message = Message(data, json.dumps(attributes), "42", "2026-01-01T00:00:00Z")
    return FieldEdits(msgspec.convert(fields, Fields)).apply(message)


def done(fields: dict[str, Any], data: bytes = ORDER, **attributes: str) -> tuple[str, dict[str, str]]:
    made = outcome(fields, data, **attributes)
    assert made.ending is Ending.KEPT, made.reason
    return made.data.decode(), json.loads(made.attributes)


def body(fields: dict[str, Any], data: bytes = ORDER) -> str:
    return done(fields, data)[0]


def test_what_is_kept_leaves_the_rest_out_and_numbers_as_they_are() -> None:
    kept = body({"keep": ["body.id", "body.total", "body.big", "body.lines.price", "body.id.x", "body.none"]})
    assert kept == '{"id":"A-17","total":100.50,"big":12345678901234567890123,"lines":[{"price":1E+2},[{}]]}'
    assert done({"keep": ["attributes.a", "attributes.c"]}, b"x", a="1", b="2") == ("x", {"a": "1"})


def test_what_is_removed_renamed_or_masked_is_so_in_each_element_of_arrays() -> None:
    lean = {"keep": ["body.lines"], "remove": ["body.lines.price", "body.none.x", "attributes.a"]}
    assert done(lean, a="1", b="2") == ('{"lines":[{"sku":"x"},[{"sku":"y"}],7]}', {"b": "2"})
    named = {"keep": ["body.lines"], "rename": {"body.lines.sku": "item", "attributes.a": "b", "body.id": "x"}}
    assert done(named, a="1", b="2") == ('{"lines":[{"price":1E+2,"item":"x"},[{"item":"y"}],7]}', {"b": "1"})
    masked = {
        "keep": ["body.customer", "body.lines"],
        "mask": ["body.customer.card", "body.lines.sku", "attributes.a"],
    }
    text, attributes = done(masked, a="secret")
    assert json.loads(text) == {
        "customer": {"name": "Ann", "card": "****"},
        "lines": [{"sku": "****", "price": 100}, [{"sku": "****"}], 7],
    }
    assert attributes == {"a": "****"}
    assert '"card":"gone"' in body({"mask": ["body.customer.card"], "maskWith": "gone"})


def test_a_template_is_made_of_the_message_as_it_came() -> None:
    made, attributes = done(
        {
            "keep": ["body.id"],
            "set": {
                "attributes.about": "{body.id} of {attributes.shop|nobody}: {body.total} {{{message_id}}}",
                "attributes.at": "{publish_time}",
                "attributes.card": "{body.customer.card}",
                "attributes.skus": "{body.lines.sku}",
                "body.copy": "{body.customer}",
                "body.copy.seen": True,
                "body.price.total": "{body.total}",
                "body.key": "{ordering_key|none}",
                "body.note": None,
                "body.rate": 0.5,
            },
        }
    )
    assert made == (
        '{"id":"A-17","copy":{"name":"Ann","card":{"number":"4111","cvc":1},"seen":true},'
        '"price":{"total":100.50},"key":"none","note":null,"rate":0.5}'
    )
    assert attributes == {
        "about": "A-17 of nobody: 100.50 {42}",
        "at": "2026-01-01T00:00:00Z",
        "card": '{"number":"4111","cvc":1}',
        "skus": '["x","y"]',
    }


def test_set_reaches_each_element_of_an_array_and_makes_what_there_is_not() -> None:
    set_ = {"body.lines.at.shop": "S{body.id}", "body.note.by": "me"}
    made = json.loads(body({"keep": ["body.lines", "body.note"], "set": set_}))
    assert made == {
        "lines": [{"sku": "x", "price": 100, "at": {"shop": "SA-17"}}, [{"sku": "y", "at": {"shop": "SA-17"}}], 7],
        "note": {"by": "me"},
    }


def test_attributes_alone_leave_the_data_as_it_is() -> None:
    data = b"\xff no JSON"
    made = outcome({"set": {"attributes.a": "{attributes.b}"}}, data, b="1")
    assert (made.data, json.loads(made.attributes)) == (data, {"a": "1", "b": "1"})


@pytest.mark.parametrize(
    ("data", "fields", "reason"),
    [
        (b"no JSON", {"mask": ["body.a"]}, "the data is not JSON ("),
        (b'{"a": 1', {"mask": ["body.a"]}, "the data is not JSON ("),
        (b"\xff", {"set": {"attributes.a": "{body.a}"}}, "the data is not JSON ("),
        (b'{"a": 1e999999999999999999999}', {"mask": ["body.a"]}, "the data is not JSON ("),
        (b'{"a":' * 100_000, {"mask": ["body.a"]}, "the data is not JSON ("),
        (b"17", {"mask": ["body.a"]}, "the data is a number, not a JSON object or array"),
        (b'{"a": 1}', {"set": {"attributes.x": "{body.b}"}}, "there is no body.b in the message"),
        (b"{}", {"set": {"attributes.x": "{attributes.y}"}}, "there is no attributes.y in the message"),
        (b"{}", {"set": {"body.x": "{ordering_key}"}}, "there is no ordering_key in the message"),
        (b'{"a": "t"}', {"set": {"body.a.b": 1}}, "body.a.b cannot be set: a is a string, not an object"),
        (b'{"a": "' + b"x" * 4_000_000 + b'"}', {"set": {"body.b": "{body.a}{body.a}"}}, "what it makes is over "),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_done_fails_and_says_why(data: bytes, fields: dict[str, Any], reason: str) -> None:
    made = outcome(fields, data)
    assert (made.ending, made.reason[: len(reason)]) == (Ending.FAILED, reason)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "fields does nothing: it needs one of keep, remove, rename, mask and set."),
        ({"maskWith": "x"}, "fields does nothing"),
        ({"keep": ["body.a", "order.total"]}, "at 'fields.keep[1]': a path is attributes.key or body.key.key"),
        ({"remove": ["body"]}, "not body."),
        ({"remove": ["body."]}, "not body.."),
        ({"remove": ["attributes.a.b"]}, "not attributes.a.b."),
        ({"mask": ["body.é"]}, "at 'fields.mask[0]'"),
        ({"mask": ["body" + ".a" * 33]}, "at most 32 of them"),
        ({"rename": {"body.a": ""}}, "at 'fields.rename[body.a]': a key of 1 to 256 bytes is expected"),
        ({"rename": {"a": "b"}}, "at 'fields.rename'"),
        ({"set": {"body.a": "{body.b"}}, "at 'fields.set[body.a]': a { at character 1 of {body.b has no other one"),
        ({"set": {"body.a": "b}"}}, "a } at character 2"),
        ({"set": {"body.a": "{order.id}"}}, "between braces is a path"),
        ({"set": {"body.a": "{body.b.}"}}, "not body.b.."),
        ({"set": {"body.a": "{message_ids}"}}, "not message_ids."),
        ({"set": {"attributes.a": 5}}, "at 'fields.set[attributes.a]': an attribute is a text, not 5."),
        ({"set": {"body.a": "x" * MAX_FIELDS_BYTES}}, "bytes, the maximum is 20480."),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_makes_no_sense_is_refused_with_the_field_and_the_value(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        plan_of(msgspec.convert(fields, Fields))
    assert said in refused.value.message


_keys = st.sampled_from(["a", "b", 'q"', "é ", "a.b"])
_paths = st.lists(_keys, min_size=1, max_size=3).map(lambda keys: ".".join(["body", *map(json.dumps, keys)]))
_documents = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=3),
    max_leaves=12,
).filter(lambda document: isinstance(document, dict | list))


def _places(value: Any, keys: list[str]) -> list[Any]:
    """What stands there, by another way of looking."""
    if isinstance(value, list):
        return [found for each in value for found in _places(each, keys)]
    if not isinstance(value, dict) or not keys or keys[0] not in value:
        return []
    return [value[keys[0]]] if len(keys) == 1 else _places(value[keys[0]], keys[1:])


@given(_documents, _paths)
def test_what_is_masked_or_removed_is_nowhere_and_what_is_kept_is_everywhere_it_was(
    document: Any, path: str
) -> None:
    data, keys = json.dumps(document).encode(), [json.loads(key) for key in _split(path)]
    before = _places(document, keys)
    assert set(map(str, _places(json.loads(body({"mask": [path]}, data)), keys))) <= {"****"}
    assert _places(json.loads(body({"remove": [path]}, data)), keys) == []
    assert _places(json.loads(body({"keep": [path]}, data)), keys) == before


def _split(path: str) -> list[str]:
    texts, decoder, rest = [], json.JSONDecoder(), path.removeprefix("body")
    while rest:
        _, end = decoder.raw_decode(rest[1:])
        texts.append(rest[1 : end + 1])
        rest = rest[end + 1 :]
    return texts
