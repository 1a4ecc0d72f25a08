"""Trees become jsonpath, and the user's text stays inside its literals."""

import json
import re

import pytest
from hypothesis import given

from broker.filtering.ast import And, Equals, Expression, Has, HasPrefix, Not, NotEquals, Or
from broker.filtering.jsonpath import to_jsonpath
from tests.unit.filtering.generated import expressions

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
