"""Generated filters, their spellings, and attributes that make them true about as often as false."""

import json

from hypothesis import strategies as st

from broker.filtering.ast import And, Equals, Expression, Has, HasPrefix, Not, NotEquals, Or

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
         "NOT", "-", "(", ")", ",", "hasPrefix", "hasAttribute", " ", "\n", "and", "\0", "\ud800", "é", "'", "$"]
    ) | st.text(max_size=2),
    max_size=40,
).map("".join)  # fmt: skip
