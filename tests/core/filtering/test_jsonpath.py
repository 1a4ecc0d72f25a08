"""Trees become jsonpath, and the user's text stays inside its literals."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.filtering.ast import And, Equals, Expression, Has, HasPrefix, Not, NotEquals, Or
from broker.core.filtering.evaluate import matches
from broker.core.filtering.jsonpath import filter_paths, to_jsonpath, upper_bound
from broker.core.filtering.parser import parse_filter
from tests.core.filtering.generated import expressions, json_texts, keys, of_bodies_too, values

LITERAL = re.compile(r'"(?:[^"\\]|\\["\\bfnrt]|\\u[0-9a-f]{4})*"')


@pytest.mark.parametrize(
    ("expression", "jsonpath"),
    [
        (Has("a.b"), 'exists($."a.b")'),
        (Equals("a", 'say "hi"'), r'exists($."a" ? (@ == "say \"hi\""))'),
        (NotEquals("$", "\\"), r'!exists($."$" ? (@ == "\\"))'),
        (HasPrefix("a", "é\n"), r'exists($."a" ? (@ starts with "\u00e9\n"))'),
        (Not(Or((Has("a"), Not(Has("b"))))), '!((exists($."a") || !(exists($."b"))))'),
        (And((Has("a"), Has("b"), Has("c"))), '(exists($."a") && exists($."b") && exists($."c"))'),
    ],
    ids=str,
)
def test_each_node_has_its_jsonpath(expression: Expression, jsonpath: str) -> None:
    assert to_jsonpath(expression) == jsonpath


@pytest.mark.parametrize(
    ("text", "by_attributes", "by_body"),
    [
        ("attributes:a", 'exists($."a")', None),
        ("body:o.n", "exists($)", 'exists($[1]."o"."n")'),
        (
            "attributes:a AND body.n > -1.5",
            'exists($."a")',
            '(exists($[0]."a") && exists($[1]."n" ? (@.type() == "number" && @ > -1.5)))',
        ),
        (
            'NOT (attributes:a OR body.n: "x")',
            '!(exists($."a"))',
            '!((exists($[0]."a") || exists($[1]."n" ? (@.type() == "string" && @ starts with "x"))))',
        ),
        ("attributes:a OR body.n = null", "exists($)", None),
        (
            "(attributes:a AND attributes:b AND body:n) OR attributes:c",
            '((exists($."a") && exists($."b")) || exists($."c"))',
            None,
        ),
    ],
)
def test_what_reads_bodies_is_asked_only_where_the_attributes_let_it(
    text: str, by_attributes: str, by_body: str | None
) -> None:
    paths = filter_paths(parse_filter(text))
    assert paths.filter_path == by_attributes
    assert (paths.body_path is not None) is ("body" in text)
    assert by_body is None or paths.body_path == by_body


@given(of_bodies_too, st.dictionaries(keys, values, max_size=5), json_texts())
def test_the_attributes_never_leave_out_what_the_whole_filter_matches(
    expression: Expression, attributes: dict[str, str], body: bytes
) -> None:
    bound = upper_bound(expression)
    assert bound is None or matches(bound, attributes) or not matches(expression, attributes, body)


def _texts(expression: Expression) -> list[str]:
    match expression:
        case Has(key):
            return [key]
        case Equals(key, text) | NotEquals(key, text) | HasPrefix(key, text):
            return [key, text]
        case Not(operand):
            return _texts(operand)
        case And(operands) | Or(operands):
            return [text for operand in operands for text in _texts(operand)]


@given(expressions)
def test_only_literals_come_from_the_user(expression: Expression) -> None:
    jsonpath = to_jsonpath(expression)
    assert [json.loads(literal) for literal in LITERAL.findall(jsonpath)] == _texts(expression)
    assert re.fullmatch(r"(?:exists|starts with|\$\.|==|&&|\|\||[ ()?@!])*", LITERAL.sub("", jsonpath))
