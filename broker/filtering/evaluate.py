"""What a filter means, in plain Python: the yardstick for the jsonpath, and enough for a dry run."""

from collections.abc import Mapping

from broker.filtering.ast import And, Equals, Expression, Has, HasPrefix, Not, NotEquals, Or


def matches(expression: Expression, attributes: Mapping[str, str]) -> bool:
    """Whether a message with these attributes is delivered."""
    match expression:
        case Has(key):
            return key in attributes
        case Equals(key, value):
            return attributes.get(key) == value
        case NotEquals(key, value):
            return attributes.get(key) != value
        case HasPrefix(key, prefix):
            return key in attributes and attributes[key].startswith(prefix)
        case Not(operand):
            return not matches(operand, attributes)
        case And(operands):
            return all(matches(operand, attributes) for operand in operands)
        case Or(operands):
            return any(matches(operand, attributes) for operand in operands)
