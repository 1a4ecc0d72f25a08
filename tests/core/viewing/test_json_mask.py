"""Fields of JSON bodies are masked; everything else stays byte for byte."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.viewing.json_mask import MASK, mask_json
from broker.core.viewing.json_path import JsonPath, Step, parse_json_path
from broker.core.viewing.masking_rule import MaskingRule, matches_any
from broker.model.errors import InvalidArgument


def masked(text: str, *paths: str) -> str | None:
    shown = mask_json(text.encode(), [parse_json_path(path, "fields[0]") for path in paths])
    return None if shown is None else shown.decode()


@pytest.mark.parametrize(
    ("text", "path", "shown"),
    [
        ('{"card":"4111","total":1.50}', "$.card", '{"card":"[masked]","total":1.50}'),
        ('{"a":{"b":1,"c":2}}', "$.a.b", '{"a":{"b":"[masked]","c":2}}'),
        ('{"a":{"b":1,"c":2}}', "$.a", '{"a":"[masked]"}'),
        ('{"i":[{"price":1},{"price":2}]}', "$.i[*].price", '{"i":[{"price":"[masked]"},{"price":"[masked]"}]}'),
        ('{"items":[{"price":1}]}', "$.items.price", '{"items":[{"price":"[masked]"}]}'),
        ('[{"a":1}]', "$.a", '[{"a":"[masked]"}]'),
        ('[1,2]', "$[*]", '["[masked]","[masked]"]'),
        ('{"a":{"x":{"ssn":1}},"ssn":[2]}', "$..ssn", '{"a":{"x":{"ssn":"[masked]"}},"ssn":"[masked]"}'),
        ('{"a":{"e-mail":1,"b.c":2}}', "$.a['b.c']", '{"a":{"e-mail":1,"b.c":"[masked]"}}'),
        ('{"a":{"e-mail":1}}', '$.a["e-mail"]', '{"a":{"e-mail":"[masked]"}}'),
        ('{"a":{"b":1},"c":2}', "$.*", '{"a":"[masked]","c":"[masked]"}'),
        ('{"c\\u0061rd":1}', "$.card", '{"card":"[masked]"}'),
        ('{ "n" : 123456789012345678901234567890.10 }', "$.card", '{ "n" : 123456789012345678901234567890.10 }'),
        ('{"n":1e400,"card":1}', "$.card", '{"n":1e400,"card":"[masked]"}'),
        ("17", "$.card", "17"),
    ],
)  # fmt: skip
def test_a_path_masks_these_values_and_no_others(text: str, path: str, shown: str) -> None:
    assert masked(text, path) == shown


@pytest.mark.parametrize(
    "data",
    [b"", b"card=4111",
     b'{"card":4111', b'{"card":"4111"} x', b'\xff\xfe{\x00}\x00', b'{"a":"\xff"}', b"\xef\xbb\xbf{}",
     b'{"a":{"card":1},"a":{}}', b"[" * 100_000, b'{"n":' + b"9" * 10_000 + b"}", b'{"\\ud800":1}'],
)  # fmt: skip
def test_what_is_not_surely_understood_is_hidden_as_a_whole(data: bytes) -> None:
    assert mask_json(data, [parse_json_path("$.a.card", "fields[0]")]) is None


def test_a_path_to_the_whole_body_hides_all_of_it() -> None:
    assert masked('{"a":1}', "$") is None


@pytest.mark.parametrize(
    "path",
    ["", "card", "$card", "$.", "$..", "$.a.", "$.[*]", "$[0]", "$['a", "$.a b", "$.a[?(@.b)]", "$...a", "$.1a",
     "$" + ".a" * 21, "$." + "a" * 300],
)  # fmt: skip
def test_a_path_that_is_none_is_refused_with_the_place(path: str) -> None:
    with pytest.raises(InvalidArgument, match=r"fields\[3\]"):
        parse_json_path(path, "fields[3]")


def test_patterns_have_stars_and_nothing_else_that_is_special() -> None:
    assert matches_any("payments-eu", ["orders", "payments-*"])
    assert matches_any("a.b", ["a.b"])
    assert not matches_any("axb", ["a.b"])
    assert matches_any("ab-x-cd", ["ab*x*cd"])
    assert not matches_any("ab-x-c", ["ab*x*cd"])
    assert matches_any("aXbXb", ["a*b"])
    assert not matches_any("aXbXbc", ["a*b"])
    assert not matches_any("a" * 5_000, ["*a" * 100 + "b"])


def test_a_rule_is_for_the_resources_of_its_project_alone() -> None:
    rule = MaskingRule(name="projects/p/maskingRules/r", topics=["pay*"], attributes=["a"])
    assert rule.covers("projects/p/topics/payments")
    assert not rule.covers("projects/q/topics/payments")
    assert not rule.covers("projects/p/topics/orders")
    assert not rule.covers("projects/p/subscriptions/payments")
    assert MaskingRule(name=rule.name, attributes=["a"]).covers("projects/p/subscriptions/any")


NAMES = st.sampled_from(["a", "b", "card", "items"])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
PATHS: st.SearchStrategy[JsonPath] = st.lists(
    st.builds(Step, st.none() | NAMES, st.booleans()), min_size=1, max_size=3
).map(tuple)


@given(VALUES, st.lists(PATHS, max_size=3))
def test_masking_agrees_with_a_plain_model_of_it(value: Any, paths: list[JsonPath]) -> None:
    shown = mask_json(json.dumps(value).encode(), paths)
    assert shown is not None
    assert json.loads(shown) == model(value, set(paths))


def model(value: Any, paths: set[JsonPath]) -> Any:
    if () in paths:
        return MASK
    if isinstance(value, list):
        below = {path for path in paths if path[0].name is not None or path[0].deep}
        below |= {path[1:] for path in paths if path[0].name is None}
        return [model(each, below) for each in value]
    if isinstance(value, dict):
        return {
            name: model(
                each,
                {path[1:] for path in paths if path[0].name in (None, name)}
                | {path for path in paths if path[0].deep},
            )
            for name, each in value.items()
        }
    return value
