"""Generated filters, their spellings, and attributes that make them true about as often as false."""

import json
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from broker.core.filtering.ast import (
    And,
    BodyCompares,
    BodyEquals,
    BodyHas,
    BodyHasPrefix,
    Equals,
    Expression,
    FieldPath,
    Has,
    HasPrefix,
    Not,
    NotEquals,
    OfBody,
    Or,
)

# What an attribute can hold: any character but U+0000, which PostgreSQL's jsonb cannot.
characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
# Few and nasty, so that a filter and a message often mean the same key, and a value the start of another.
keys = st.sampled_from(
    ["a", "AND", "-", "a.b", "$", "$.a", '"', "\\", "k e y", "みん", "😀", "", "a\nb", "@", "\\u0061", '") || ("']
) | st.text(characters, max_size=4)
values = st.sampled_from(
    [
        "",
        "a",
        "ab",
        "abc",
        "A",
        '"',
        '"a',
        "\\",
        "\\\\",
        "$",
        "$.a",
        "é",
        "e\u0301",
        "😀",
        "😀a",
        "%",
        ".*",
        "\x7f",
        "\r\n",
    ]
) | st.text(characters, max_size=4)
attributes = st.dictionaries(keys, values, max_size=5)

# Bodies, and what is said of them: again few and nasty, numbers that floats would take for one another among them.
paths = st.lists(st.sampled_from(["a", "b", "a.b", '"', "é"]) | keys, min_size=1, max_size=3).map(tuple)
numbers = st.sampled_from(
    ["0", "-0.0", "1", "1.0", "1e0", "100", "1E+2", "-5", "0.1", "0.10000000000000001", "9007199254740993",
     "9007199254740992", "1e308", "-1e-308"]
).map(Decimal)  # fmt: skip
scalars = values | numbers | st.booleans() | st.none()
_inner = st.recursive(
    scalars,
    lambda smaller: (
        st.lists(smaller, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "é"]) | keys, smaller)
    ),
    max_leaves=8,
)
documents = (
    st.dictionaries(st.sampled_from(["a", "b", "a.b"]) | keys, _inner, max_size=4) | st.lists(_inner) | _inner
)


@st.composite
def json_texts(draw: st.DrawFn) -> bytes:
    """A document as JSON, its strings escaped or not."""
    return _json(draw(documents), escaped=draw(st.booleans())).encode()


def _json(value: Any, *, escaped: bool) -> str:
    match value:
        case Decimal():
            return str(value)
        case list():
            return f"[{','.join(_json(each, escaped=escaped) for each in value)}]"
        case dict():
            pairs = (
                f"{json.dumps(k, ensure_ascii=escaped)}: {_json(v, escaped=escaped)}" for k, v in value.items()
            )
            return f"{{{', '.join(pairs)}}}"
    return json.dumps(value, ensure_ascii=escaped)


# What PostgreSQL's jsonb and Python's json might take for different things, and what is no JSON at all.
HOSTILE_BODIES = [
    b"", b" ", b"{}", b"[]", b'"a"', b"5", b"null", b"{", b'{"a": 1', b'{"a": 1}x', b'{"a": NaN}',
    b'{"a": Infinity}', b'{"a": -Infinity}', b'{"a": 01}', b'{"a": .5}', b'{"a": 1.}', b'{"a": +1}',
    b'{"a": 1e5}', b'{"a": 1,}', b"{'a': 1}", b'{"a": "\\u0000"}', b'{"\\u0000": 1, "a": 1}', b'{"a": "\\ud800"}',
    b'{"a": "\\udc00\\ud800"}', b'{"a": "\\ud83d\\ude00"}', b'{"a": "\xed\xa0\x80"}', b'{"a": "\xff"}',
    b'\xef\xbb\xbf{"a": 1}', b'{"a": "\x01"}', b'{"a": "\x7f"}', b'{"a": "\n"}', b'{"a": 1, "a": 2}',
    b'{"a": 2, "a": 1}', b"\x00", b'{"a": 1}\x00', b'\x0b{"a": 1}', b'\xc2\xa0{"a": 1}', b' \t\r\n{"a" : 1}\n',
    '{"a": 1}'.encode("utf-16"), b'{"a": 1e131071}', b'{"a": 1e131072}', b'{"a": 1e-16383}', b'{"a": 1e-16384}',
    b'{"a": 0e-16384}', b'{"a": 0e999999}', b'{"a": 1e99999999999999999999}', b'{"a": 1' + b"0" * 5000 + b"}",
    b'{"a": ' + b"[" * 50_000 + b"]" * 50_000 + b"}", b"[" * 100_000, b'{"a":' * 50_000, b'{"a": [[1]]}',
    b'{"a": [1, "1", null, true]}', b'[{"a": 1}]', b'[[{"a": 1}]]', b'{"a": [{"a": [{"a": 1}]}]}',
    b'{"a": "' + b"x" * 262_134 + b'"}', b'{"a": "' + b"x" * 262_135 + b'"}', b'{"a": "\\/"}', b'{"a": "\\x41"}',
    b'{"a": tru}', b'{"a": TRUE}', b'{"a": 1}//', b"\xff\xff",
]  # fmt: skip

comparisons: st.SearchStrategy[Expression] = st.one_of(
    st.builds(Has, keys),
    st.builds(Equals, keys, values),
    st.builds(NotEquals, keys, values),
    st.builds(HasPrefix, keys, values),
)


def _larger(smaller: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    several = st.lists(smaller, min_size=2, max_size=3).map(tuple)
    return st.builds(Not, smaller) | st.builds(And, several) | st.builds(Or, several)


expressions = st.recursive(comparisons, _larger, max_leaves=6)

comparisons_of_bodies: st.SearchStrategy[Expression] = st.one_of(
    st.builds(BodyHas, paths),
    st.builds(BodyEquals, paths, scalars),
    st.builds(BodyCompares, paths, st.sampled_from(["<", "<=", ">", ">="]), numbers),
    st.builds(BodyHasPrefix, paths, values),
)
of_bodies_too = st.recursive(comparisons_of_bodies | comparisons_of_bodies | comparisons, _larger, max_leaves=6)

BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


@st.composite
def spellings(draw: st.DrawFn, expression: Expression) -> str:
    """One of the ways to write the expression down."""
    gap = draw(st.sampled_from(["", " ", "\n\t"]))
    match expression:
        case Has(key):
            short = f"hasAttribute({gap}{draw(_literals(key))}{gap})"
            text = draw(st.sampled_from([f"attributes{gap}:{gap}{draw(_keys(key))}", short]))
        case Equals(key, value):
            text = f"attributes.{gap}{draw(_keys(key))}{gap}={gap}{draw(_literals(value))}"
        case NotEquals(key, value):
            text = f"attributes{gap}.{draw(_keys(key))}{gap}!={gap}{draw(_literals(value))}"
        case HasPrefix(key, prefix):
            name, literal = draw(_keys(key)), draw(_literals(prefix))
            long = f"hasPrefix{gap}({gap}attributes.{name},{gap}{literal})"
            text = draw(st.sampled_from([long, f"attributes.{name}{gap}:{gap}{literal}"]))
        case BodyHas() | BodyEquals() | BodyCompares() | BodyHasPrefix():
            text = draw(_of_bodies(expression, gap))
        case Not(operand):
            inner = draw(spellings(operand))
            inner = f"({inner})" if isinstance(operand, Not | And | Or) else inner
            text = draw(st.sampled_from(["NOT ", "-"])) + inner
        case And(operands) | Or(operands):
            word = " AND " if isinstance(expression, And) else "\nOR "
            inners = [draw(spellings(o)) for o in operands]
            text = word.join(
                f"({i})" if isinstance(o, And | Or) else i for o, i in zip(operands, inners, strict=True)
            )
    return f"({gap}{text}{gap})" if draw(st.integers(0, 4)) == 0 else text


@st.composite
def _of_bodies(draw: st.DrawFn, expression: OfBody, gap: str) -> str:
    path = draw(_paths(expression.path))
    match expression:
        case BodyHas():
            return f"body{gap}:{gap}{path}"
        case BodyEquals(_, value):
            literal = draw(_literals(value)) if isinstance(value, str) else _json(value, escaped=True)
            return f"body{gap}.{gap}{path}{gap}={gap}{literal}"
        case BodyCompares(_, order, number):
            return f"body.{path}{gap}{order}{gap}{number}"
        case BodyHasPrefix(_, prefix):
            literal = draw(_literals(prefix))
            return draw(st.sampled_from([f"hasPrefix(body.{path},{gap}{literal})", f"body.{path}{gap}:{literal}"]))


@st.composite
def _paths(draw: st.DrawFn, path: FieldPath) -> str:
    return draw(st.sampled_from([".", " . "])).join(draw(_keys(key)) for key in path)


@st.composite
def _keys(draw: st.DrawFn, key: str) -> str:
    return key if key and set(key) <= BARE and draw(st.booleans()) else draw(_literals(key))


@st.composite
def _literals(draw: st.DrawFn, text: str) -> str:
    escaped = draw(st.booleans())
    return '"' + "".join(_escape(c) if escaped or not c.isprintable() or c in '"\\' else c for c in text) + '"'


def _escape(character: str) -> str:
    if ord(character) < 0x100:
        return f"\\{ord(character):03o}" if ord(character) % 2 else f"\\x{ord(character):02X}"
    return f"\\U{ord(character):08x}" if ord(character) % 2 else json.dumps(character)[1:-1]


# Text that looks like a filter, and text that does not.
hostile_texts = st.text(max_size=60) | st.lists(
    st.sampled_from(
        ["attributes", "a", "lang", ".", ":", "=", "!=", '"', '"x"', '"\\"', "\\", "\\u0", "\\x", "AND", "OR",
         "NOT", "-", "(", ")", ",", "hasPrefix", "hasAttribute", "body", "<", "1e9", " ", "\n", "and",
         "\0", "\ud800", "é", "'", "$"]
    ) | st.text(max_size=2),
    max_size=40,
).map("".join)  # fmt: skip
