"""Texts become trees, and errors name the place and what was expected there."""

from decimal import Decimal

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from broker.core.filtering.ast import (
    And,
    BodyCompares,
    BodyEquals,
    BodyHas,
    BodyHasPrefix,
    Equals,
    Expression,
    Has,
    HasPrefix,
    Not,
    NotEquals,
    Or,
)
from broker.core.filtering.evaluate import matches
from broker.core.filtering.jsonpath import to_jsonpath
from broker.core.filtering.parser import MAX_FILTER_BYTES, parse_filter
from broker.model.errors import InvalidArgument
from tests.core.filtering.generated import expressions, hostile_texts, of_bodies_too, spellings

OPERAND = 'attributes, body, hasPrefix, hasAttribute, NOT, "-" or "("'
ONLY_ATTRIBUTES = (
    "; only attributes, and fields of a JSON body, can be filtered on, and every operand is a whole comparison"
)
AFTER_PATH = '".", ":", "=", "!=" or "<", "<=", ">", ">="'
QUOTE_THE_KEY = "; a key with other characters than letters, digits, - and _ is written in double quotes"
MIXED = "; AND and OR are mixed only with parentheses"
NOT_CLOSED = ", expected a string in double quotes; the string that begins here is not closed"
SECOND_NOT = 'expected attributes, body, hasPrefix, hasAttribute or "("; a second negation needs parentheses'
NEXT = "expected AND, OR or the end of the filter"

PROBLEMS = [
    ("attributes:a and attributes:b", 14, f'found "and", {NEXT}; operators are in upper case: AND'),
    ("attributes:a AND attributes:b OR", 31, 'found "OR", expected AND or the end of the filter' + MIXED),
    ("(attributes:a OR attributes:b AND attributes:c)", 31, 'found "AND", expected OR or ")"' + MIXED),
    ("attributes:a.b", 13, f'found ".", {NEXT}' + QUOTE_THE_KEY),
    ('attributes.a/b = "c"', 13, 'found "/", expected ":", "=" or "!="' + QUOTE_THE_KEY),
    ("attributes:みんな", 12, 'found "み", expected a key or a string in double quotes' + QUOTE_THE_KEY),
    ('attributes.a == "c"', 15, 'found "=", expected a string in double quotes'),
    ("attributes.a = c", 16, 'found "c", expected a string in double quotes'),
    ('attributes.a < "c"', 14, 'found "<", expected ":", "=" or "!="'),
    ('data = "x"', 1, f'found "data", expected {OPERAND}{ONLY_ATTRIBUTES}'),
    ('attributes:a AND ("b" OR "c")', 19, rf'found "\"b\"", expected {OPERAND}{ONLY_ATTRIBUTES}'),
    ('attributes:a\n AND "b"', 19, rf'found "\"b\"", expected {OPERAND}{ONLY_ATTRIBUTES}'),
    ('attributes.a = "x', 16, r'found "\"x"' + NOT_CLOSED),
    (f'attributes.a = "{"x" * 50}', 16, r'found "\"' + "x" * 39 + '…"' + NOT_CLOSED),
    ("attributes:a AND", 17, f"the filter ends, expected {OPERAND}"),
    ("(attributes:a", 14, 'the filter ends, expected AND, OR or ")"'),
    ("attributes:a)", 13, f'found ")", {NEXT}'),
    ("attributes:a attributes:b", 14, f'found "attributes", {NEXT}'),
    ("attributes:a\u00a0AND attributes:b", 13, rf'found "\u00a0", {NEXT}'),
    ("attributes", 11, 'the filter ends, expected "." or ":"'),
    ("attributes:", 12, "the filter ends, expected a key or a string in double quotes"),
    (" ", 2, f"the filter ends, expected {OPERAND}"),
    ("NOT NOT attributes:a", 5, 'found "NOT", ' + SECOND_NOT),
    ("--attributes:a", 2, 'found "-attributes", ' + SECOND_NOT),
    ("not attributes:a", 1, f'found "not", expected {OPERAND}; operators are in upper case: NOT'),
    ("hasprefix(attributes.a)", 1, f'found "hasprefix", expected {OPERAND}; the function is spelled hasPrefix'),
    ("hasPrefix(attributes.a)", 23, 'found ")", expected ","'),
    (r'attributes.a = "x\q"', 18, "unknown escape"),
    (r'attributes."a\q" = "x"', 14, "unknown escape"),
    ('attributes.a = "x\ny"', 18, r"a non-printing character in a string is escaped: \x0a"),
    (r'attributes.a = "\u0000"', 17, "this character cannot occur in an attribute"),
    (r'attributes.a = "x\U00110000"', 18, "this character cannot occur in an attribute"),
    (r'attributes.a = "\ud83d"', 16, "the string has half a surrogate pair, which is not a character"),
    ("body", 5, 'the filter ends, expected "." or ":"'),
    ("body.a", 7, f"the filter ends, expected {AFTER_PATH}"),
    ("body.a/b = 1", 7, f'found "/", expected {AFTER_PATH}' + QUOTE_THE_KEY),
    ("body.a[0] = 1", 7, f'found "[", expected {AFTER_PATH}; an array stands for each of its elements'),
    ("body.a = b", 10, 'found "b", expected a string in double quotes, a number or true, false, null'),
    ("body.a = 01", 10, 'found "01", expected a string in double quotes, a number or true, false, null'),
    ('body.a > "5"', 10, r'found "\"5\"", expected a number'),
    ("body.a > 1e309", 10, "a number is between 1e-308 and 1e308, or zero"),
    ("body:a = 1", 8, 'found "=", expected ".", AND, OR or the end of the filter'),
    ("hasPrefix(body.a, 5)", 19, 'found "5", expected a string in double quotes'),
    ("attributes:a \ud83d", 14, "half a surrogate pair is not a character"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "column", "problem"), PROBLEMS, ids=[ascii(text)[:60] for text, _, _ in PROBLEMS])
def test_an_error_names_the_place_and_what_was_expected(text: str, column: int, problem: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse_filter(text)
    assert refused.value.message.startswith(f"The filter is not valid: at column {column}: {problem}")


def test_a_filter_has_at_most_256_bytes_of_utf_8() -> None:
    longest = 'attributes.a = "' + "é" * 119 + 'x"'
    assert len(longest.encode()) == MAX_FILTER_BYTES
    assert parse_filter(longest) == Equals("a", "é" * 119 + "x")
    with pytest.raises(InvalidArgument, match="it has 257 bytes of UTF-8, the maximum is 256"):
        parse_filter(longest + " ")


def test_each_form_has_its_node() -> None:
    text = (
        'attributes:a AND hasAttribute("b") AND attributes.c = "1" AND attributes."d.e" != "2"'
        ' AND hasPrefix(attributes.f, "3") AND attributes.g: "4" AND (NOT attributes:h OR -attributes:i)'
    )
    assert parse_filter(text) == And(
        (
            Has("a"),
            Has("b"),
            Equals("c", "1"),
            NotEquals("d.e", "2"),
            HasPrefix("f", "3"),
            HasPrefix("g", "4"),
            Or((Not(Has("h")), Not(Has("i")))),
        )
    )


def test_each_form_of_the_body_has_its_node() -> None:
    text = (
        'body:a.b AND body."d.e" = "1" AND body.body.x-y != -2.50 AND body.g >= 1e3 AND body.h = null AND'
        ' hasPrefix(body.i.j, "3") AND body.k: "4" AND body.l = true AND attributes:body'
    )
    assert parse_filter(text) == And(
        (
            BodyHas(("a", "b")),
            BodyEquals(("d.e",), "1"),
            Not(BodyEquals(("body", "x-y"), Decimal("-2.5"))),
            BodyCompares(("g",), ">=", Decimal(1000)),
            BodyEquals(("h",), None),
            BodyHasPrefix(("i", "j"), "3"),
            BodyHasPrefix(("k",), "4"),
            BodyEquals(("l",), True),
            Has("body"),
        )
    )


def test_every_escape_is_understood() -> None:
    text = r'attributes.a = "\a\b\f\n\r\t\v\\\"\'\`\?\x41\101\u0041\U00000041\ud83d\ude00"'
    assert parse_filter(text) == Equals("a", "\a\b\f\n\r\t\v\\\"'`?AAAA😀")


@pytest.mark.parametrize("text", ["(" * 122 + "attributes:k" + ")" * 122, "-(" * 81 + "attributes:k" + ")" * 81])
def test_deep_nesting_is_no_burden(text: str) -> None:
    assert matches(parse_filter(text), {"k": ""}) is text.startswith("((")


@pytest.mark.parametrize("text", ["(" * 256, "-(" * 128, "NOT " * 64, "(" * 128 + ")" * 128, ")" * 256, "-" * 256])
def test_deep_nesting_that_is_wrong_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        parse_filter(text)


@given(hostile_texts)
@example("attributes:\0")
@example('attributes."\ud800"')
def test_any_text_is_a_filter_or_an_invalid_argument(text: str) -> None:
    try:
        answer = to_jsonpath(parse_filter(text))
    except InvalidArgument as refused:
        answer = refused.message
    assert answer.isprintable()


@given(st.data())
def test_a_filter_means_the_same_however_it_is_spelled(data: st.DataObject) -> None:
    expression: Expression = data.draw(expressions | of_bodies_too)
    text = data.draw(spellings(expression))
    assume(len(text.encode()) <= MAX_FILTER_BYTES)
    assert parse_filter(text) == expression
