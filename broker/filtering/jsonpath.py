"""What a filter says → a PostgreSQL jsonpath for `attributes @@ filter`.

- Only literals come from the user, each as one jsonpath string of ASCII (`json.dumps`: the two languages spell
  strings alike), so no text of theirs can end its literal, whatever the encoding between here and the server.
- lax mode: a missing key is an empty sequence, not an error.
- Every comparison stands in `exists(… ? (…))`, which is true or false, even for data that no message should
  have (a number compared with a string is "unknown", and `@@` would answer NULL: the message would vanish).
"""

import json

from broker.filtering.ast import And, Equals, Expression, Has, HasPrefix, Not, NotEquals, Or


def to_jsonpath(expression: Expression) -> str:
    """A jsonpath predicate that is true for the attributes (a jsonb object of strings) that match, else false.

    PostgreSQL refuses U+0000 in it; parsed filters have none.
    """
    match expression:
        case Has(key):
            return f"exists({_member(key)})"
        case Equals(key, value):
            return f"exists({_member(key)} ? (@ == {_string(value)}))"
        case NotEquals(key, value):
            return f"!{to_jsonpath(Equals(key, value))}"
        case HasPrefix(key, prefix):
            return f"exists({_member(key)} ? (@ starts with {_string(prefix)}))"
        case Not(operand):
            return f"!({to_jsonpath(operand)})"
        case And(operands):
            return f"({' && '.join(map(to_jsonpath, operands))})"
        case Or(operands):
            return f"({' || '.join(map(to_jsonpath, operands))})"


def _member(key: str) -> str:
    return f"$.{_string(key)}"


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=True)
